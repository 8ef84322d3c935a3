package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var gadgets = widgets.GroupVersion().WithResource("gadgets")

// gadgetExport returns an export of gadgets, which have a scale subresource. It claims widgets with an identity.
func gadgetExport(identity string) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.gadgets.example.org}
spec:
  group: example.org
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      type: object
      properties:
        spec: {type: object, properties: {replicas: {type: integer}}}
        status: {type: object, properties: {replicas: {type: integer}, ready: {type: boolean}}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: gadgets}
spec:
  resources:
  - {group: example.org, name: gadgets, schema: v1.gadgets.example.org, storage: {crd: {}}}
  permissionClaims:
  - {group: example.org, resource: widgets, identityHash: %q, verbs: ["*"]}
`, identity)
}

// claimant creates a cluster that exports gadgets and claims widgets with an identity.
func claimant(t *testing.T, identity string) *kcptest.Cluster {
	t.Helper()
	c := server.Cluster(t)
	c.Apply(t, gadgetExport(identity))
	waitForIdentity(t, c, "gadgets")
	return c
}

// bindGadgets binds gadgets of a claimant, and sets the state of its claim on widgets with an identity.
func bindGadgets(t *testing.T, consumer, claimant *kcptest.Cluster, identity, state string) {
	t.Helper()
	consumer.Apply(t, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: gadgets}
spec:
  reference: {export: {path: %q, name: gadgets}}
  permissionClaims:
  - {group: example.org, resource: widgets, identityHash: %q, verbs: ["*"], state: %s, selector: {matchAll: true}}
`, claimant.Name, identity, state))
	waitForPhaseOf(t, consumer, "gadgets", "Bound")
}

// seesWidgets waits until a claimant sees exactly the widgets with those names.
func seesWidgets(t *testing.T, claimant *kcptest.Cluster, cluster string, names ...string) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("the claimant sees %v in %s", names, cluster), func(ctx context.Context) error {
		list, err := viewOf(t, kcptest.Masters, claimant, "gadgets", cluster).Resource(widgets).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, item := range list.Items {
			seen = append(seen, item.GetName())
		}
		if strings.Join(seen, " ") != strings.Join(names, " ") {
			return fmt.Errorf("got %v", seen)
		}
		return nil
	})
}

func TestProviderCanClaimResourceOfAnotherExport(t *testing.T) {
	t.Parallel()
	p, consumer, careful := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	identity := identityOf(t, ctx, p)
	c := claimant(t, identity)
	for _, bound := range []*kcptest.Cluster{consumer, careful} {
		bind(t, bound, p)
		create(t, bound, "of-"+bound.Name)
	}
	bindGadgets(t, consumer, c, identity, "Accepted")
	bindGadgets(t, careful, c, identity, "Rejected")

	command := c.Command(t, "kubectl", kcptest.Masters)
	through := "--server=" + server.URL + pathOf(c, "gadgets", consumer.Name)
	if out := command.Run(t, through, "api-resources", "--no-headers"); !strings.Contains(out, "widgets ") || !strings.Contains(out, "gadgets ") || !strings.Contains(out, "apibindings ") {
		t.Errorf("unexpected API resources in the view of the claimant:\n%s", out)
	}
	if out := command.Run(t, through, "explain", "widgets.spec.size"); !strings.Contains(out, "How large it is.") {
		t.Errorf("unexpected output of kubectl explain:\n%s", out)
	}
	seesWidgets(t, c, "*", "of-"+consumer.Name)
	seesWidgets(t, c, consumer.Name, "of-"+consumer.Name)
	_, err := viewOf(t, kcptest.Masters, c, "gadgets", careful.Name).Resource(widgets).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = viewOf(t, kcptest.Masters, c, "gadgets", careful.Name).Resource(widgets).Namespace("default").Create(ctx, widget("planted", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	inside := viewOf(t, kcptest.Masters, c, "gadgets", consumer.Name).Resource(widgets).Namespace("default")
	if _, err := inside.Create(ctx, widget("made", 1), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	_, err = inside.Create(ctx, widget("large", 101), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
	if _, err := inside.Apply(ctx, "applied", widget("applied", 2), metav1.ApplyOptions{FieldManager: "claimant"}); err != nil {
		t.Error(err)
	}
	seesWidgets(t, c, "*", "applied", "made", "of-"+consumer.Name)
	bindGadgets(t, consumer, c, identity, "Rejected")
	seesWidgets(t, c, "*")
	_, err = inside.Get(ctx, "made", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestClaimCoversOnlyItsIdentity(t *testing.T) {
	t.Parallel()
	p, other, consumer := provider(t), provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	guessed := strings.Repeat("0", 64)
	for what, identity := range map[string]string{"of another provider's export": identityOf(t, ctx, other), "without an export": guessed} {
		c, into := claimant(t, identity), server.Cluster(t)
		bind(t, into, p)
		create(t, into, "one")
		bindGadgets(t, into, c, identity, "Accepted")
		for _, cluster := range []string{"*", into.Name, consumer.Name} {
			list, err := viewOf(t, kcptest.Masters, c, "gadgets", cluster).Resource(widgets).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				t.Errorf("a claim on an identity %s shows %d widgets in %s", what, len(list.Items), cluster)
			}
		}
		_, err := viewOf(t, kcptest.Masters, c, "gadgets", into.Name).Resource(widgets).Namespace("default").Create(ctx, widget("planted", 1), metav1.CreateOptions{})
		if err == nil {
			t.Errorf("a claim on an identity %s lets its provider create", what)
		}
		if _, err := into.Objects(t, widgets).Namespace("default").Get(ctx, "planted", metav1.GetOptions{}); err == nil {
			t.Error("a widget was planted")
		}
	}
}

func TestPolicyOfProviderAppliesToClaimants(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	identity := identityOf(t, ctx, p)
	c := claimant(t, identity)
	bind(t, consumer, p)
	create(t, consumer, "one")
	bindGadgets(t, consumer, c, identity, "Accepted")
	seesWidgets(t, c, consumer.Name, "one")
	limit := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, limit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{consumer.Name, "*"} {
		kcptest.Eventually(t, "the policy applies in "+cluster, func(ctx context.Context) error {
			_, err := viewOf(t, kcptest.Masters, c, "gadgets", cluster).Resource(widgets).List(ctx, metav1.ListOptions{})
			return forbidden(err)
		})
	}
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.org], resources: [widgets], verbs: [get, list]}]
`)
	p.Kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=apis.kcp.io:binding:"+kcptest.Masters.Name)
	seesWidgets(t, c, consumer.Name, "one")
	_, err := viewOf(t, kcptest.Masters, c, "gadgets", consumer.Name).Resource(widgets).Namespace("default").Create(ctx, widget("made", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestProviderWritesScaleAndStatus(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	c := claimant(t, identityOf(t, ctx, p))
	bindGadgets(t, consumer, c, identityOf(t, ctx, p), "Rejected")
	gadget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": map[string]any{"name": "one", "namespace": "default"}, "spec": map[string]any{"replicas": int64(1)},
	}}
	if _, err := consumer.Objects(t, gadgets).Namespace("default").Create(ctx, gadget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	through := "--server=" + server.URL + pathOf(c, "gadgets", consumer.Name)
	c.Kubectl(t, through, "scale", "gadget", "one", "--replicas=3")
	c.Kubectl(t, through, "patch", "gadget", "one", "--subresource=status", "--type=merge", "--patch", `{"spec":{"replicas":9},"status":{"replicas":2,"ready":true}}`)
	if out := c.Kubectl(t, through, "get", "gadget", "one", "--subresource=scale", "-o", "jsonpath={.spec.replicas} {.status.replicas}"); out != "3 2" {
		t.Errorf("got scale %q", out)
	}
	if out := consumer.Kubectl(t, "get", "gadget", "one", "-o", "jsonpath={.spec.replicas} {.status.ready}"); out != "3 true" {
		t.Errorf("the consumer got %q", out)
	}
	stranger := "--server=" + server.URL + pathOf(c, "gadgets", p.Name)
	if out := c.Command(t, "kubectl", kcptest.Masters).Fail(t, stranger, "get", "gadget", "one", "--subresource=scale"); !strings.Contains(out, "orbidden") {
		t.Errorf("in a workspace without binding: %s", out)
	}
}
