package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// forbidden returns nil if err is a Forbidden error.
func forbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("got %w, want Forbidden", err)
}

func TestProviderLimitsPermissionsOfConsumers(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	client := consumer.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default")
	if _, err := client.Create(ctx, widget("before", 1), metav1.CreateOptions{}); err != nil {
		t.Fatalf("without a policy: %v", err)
	}
	limit := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, limit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the policy applies", func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		return forbidden(err)
	})
	for _, identity := range []string{identityOf(t, ctx, p), ""} {
		named := widgets.GroupVersion().WithResource("widgets:" + identity)
		if list, err := consumer.Dynamic(t, kcptest.Alice).Resource(named).Namespace("default").List(ctx, metav1.ListOptions{}); err == nil {
			t.Errorf("the policy is bypassed with the identity %q: %v", identity, list.Items)
		}
	}
	// A user with the same name in the provider's cluster is a different user.
	grant := func(role, user string) {
		p.Kubectl(t, "create", "clusterrolebinding", role, "--clusterrole="+role, "--user="+user)
	}
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.org], resources: [widgets], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
`)
	grant("everything", kcptest.Alice.Name)
	p.Kubectl(t, "create", "clusterrolebinding", "everybody", "--clusterrole=everything", "--group=system:authenticated")
	grant("reader", "apis.kcp.io:binding:"+kcptest.Alice.Name)
	kcptest.Eventually(t, "the policy allows requests that it covers", func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		return err
	})
	kcptest.WantReason(t, client.Delete(ctx, "before", metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	_, err := client.Create(ctx, widget("after", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// The policy limits permissions, and grants none.
	consumer.Kubectl(t, "delete", "clusterrolebinding", kcptest.Alice.Name+"-cluster-admin")
	kcptest.Eventually(t, "the rules of the consumer apply", func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		return forbidden(err)
	})
}

func TestResourceNamesWithIdentityDoNotBypassPermissions(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	forged := []byte(`{"status":{"phase":"Bound","boundResources":[]}}`)
	for _, suffix := range []string{"", ":", ":" + identityOf(t, ctx, p)} {
		named := kcptest.APIBindings.GroupVersion().WithResource("apibindings" + suffix)
		_, err := consumer.Dynamic(t, kcptest.Alice).Resource(named).Patch(ctx, "widgets", types.MergePatchType, forged, metav1.PatchOptions{}, "status")
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			t.Errorf("the status was forged through the resource name %q: %v", named.Resource, err)
		}
	}
}

func TestPoliciesOfProviderApplyToBoundResources(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	policy := func(name, field string) string {
		return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [widgets, configmaps]}]
  validations: [{expression: '!object.metadata.name.startsWith("%[2]s")', message: "%[2]s is not a good name"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name, field)
	}
	p.Apply(t, policy("of-the-provider", "theirs"))
	consumer.Apply(t, policy("of-the-consumer", "ours"))
	inside := consumer.Objects(t, widgets).Namespace("default")
	through := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets).Namespace("default")
	for _, name := range []string{"theirs", "ours"} {
		kcptest.Eventually(t, "the rules refuse a widget with the name "+name, func(ctx context.Context) error {
			_, err := inside.Create(ctx, widget(name+"-"+kcptest.Suffix(), 1), metav1.CreateOptions{})
			return refused(err, name)
		})
		_, err := through.Create(ctx, widget(name+"-x", 1), metav1.CreateOptions{})
		if err := refused(err, name); err != nil {
			t.Errorf("through the provider's view: %v", err)
		}
	}
	if _, err := consumer.Objects(t, configMaps).Namespace("default").Create(ctx, configMap("theirs", nil), metav1.CreateOptions{}); err != nil {
		t.Errorf("the rules of the provider apply to resources that it does not export: %v", err)
	}
}

// refused returns nil if err says that a name is not good.
func refused(err error, name string) error {
	if err != nil && strings.Contains(err.Error(), name+" is not a good name") {
		return nil
	}
	return fmt.Errorf("got %w", err)
}
