package apisharing

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// limit gives an export a policy that allows nothing, and waits until it applies to Alice in a consumer.
func limit(t *testing.T, p, consumer *kcptest.Cluster) {
	t.Helper()
	policy := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(kcptest.Context(t), "widgets", types.MergePatchType, policy, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the policy applies", func(ctx context.Context) error {
		_, err := consumer.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default").List(ctx, metav1.ListOptions{})
		return forbidden(err)
	})
}

func TestIdentityInURLDoesNotBypassRules(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	victim, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, victim)
	create(t, consumer, "one")
	identity := identityOf(t, ctx, victim)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	limit(t, victim, consumer)
	inside := consumer.Dynamic(t, kcptest.Alice)
	for _, suffix := range []string{":" + identity, ":"} {
		resource := widgets
		resource.Resource += suffix
		if _, err := inside.Resource(resource).Namespace("default").List(ctx, metav1.ListOptions{}); err == nil {
			t.Errorf("the policy of the provider does not apply to %s", resource.Resource)
		}
		if err := inside.Resource(resource).Namespace("default").Delete(ctx, "one", metav1.DeleteOptions{}); err == nil {
			t.Errorf("the policy of the provider does not apply to %s", resource.Resource)
		}
	}
	everywhere := widgets
	everywhere.Resource += ":" + identity
	_, err := server.Named("*").Dynamic(t, kcptest.Alice).Resource(everywhere).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// Only the server can write the status.
	bound := fmt.Sprintf(`{"status":{"boundResources":[{"group":"example.org","resource":"widgets","schema":{"name":"x","UID":"x","identityHash":%q}}]}}`, identity)
	for _, suffix := range []string{"", ":", ":" + identity} {
		resource := kcptest.APIBindings
		resource.Resource += suffix
		if _, err := inside.Resource(resource).Patch(ctx, "widgets", types.MergePatchType, []byte(bound), metav1.PatchOptions{}, "status"); err == nil {
			t.Errorf("the status of an APIBinding was written through the resource %s", resource.Resource)
		}
	}
}

func TestUsingIdentityRequiresReadAccessToItsKey(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: exporter}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps], verbs: [list]}
`)
	p.Grant(t, kcptest.Bob, "exporter")
	client := p.Dynamic(t, kcptest.Bob).Resource(kcptest.APIExports)
	twin := func(name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	identity := map[string]any{"identity": map[string]any{"secretRef": map[string]any{"name": "widgets", "namespace": "kcp-system"}}}
	kcptest.Eventually(t, "Bob can create exports", func(ctx context.Context) error {
		_, err := client.Create(ctx, twin("plain", map[string]any{}), metav1.CreateOptions{})
		return err
	})
	_, err := client.Create(ctx, twin("twin", identity), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = client.Patch(ctx, "plain", types.MergePatchType, []byte(`{"spec":{"identity":{"secretRef":{"name":"widgets","namespace":"kcp-system"}}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestIdentityOfAnotherProviderCannotBeUsed(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	victim, consumer, thief := provider(t), server.Cluster(t), server.Cluster(t)
	bind(t, consumer, victim)
	create(t, consumer, "one")
	identity := identityOf(t, ctx, victim)
	thief.Grant(t, kcptest.Alice, "cluster-admin")
	thief.Apply(t, widgetSchema("v1", 100)+"---"+export("v1"))
	kcptest.Eventually(t, "the export of the attacker has an identity", func(ctx context.Context) error {
		if identityOf(t, ctx, thief) == "" {
			return fmt.Errorf("no identity")
		}
		return nil
	})
	client := thief.Dynamic(t, kcptest.Alice)
	stolen := []byte(fmt.Sprintf(`{"status":{"identityHash":%q}}`, identity))
	for _, suffix := range []string{"", ":", ":" + identity} {
		resource := kcptest.APIExports
		resource.Resource += suffix
		if _, err := client.Resource(resource).Patch(ctx, "widgets", types.MergePatchType, stolen, metav1.PatchOptions{}, "status"); err == nil {
			t.Errorf("the status of an APIExport was written through the resource %s", resource.Resource)
		}
	}
	// A user cannot set the identity of a new export either, nor that of an existing one with a secret that does not have its key.
	born := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": map[string]any{"name": "born"},
		"spec": map[string]any{}, "status": map[string]any{"identityHash": identity},
	}}
	if _, err := client.Resource(kcptest.APIExports).Create(ctx, born, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	thief.Kubectl(t, "create", "secret", "generic", "stolen", "--from-literal=key="+identity)
	named := []byte(`{"spec":{"identity":{"secretRef":{"name":"stolen","namespace":"default"}}}}`)
	if _, err := client.Resource(kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, named, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the status of the export says that the secret has another identity", func(ctx context.Context) error {
		e, err := client.Resource(kcptest.APIExports).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(e.Object["status"]); !strings.Contains(text, "IdentityVerificationFailed") || strings.Contains(text, identity) {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
	// A claim with that identity covers only objects of consumers who accept it, and none has.
	claim := []byte(fmt.Sprintf(`{"spec":{"permissionClaims":[{"group":"example.org","resource":"gadgets","verbs":["*"],"identityHash":%q}]}}`, identity))
	if _, err := client.Resource(kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, claim, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"*", consumer.Name} {
		for _, resource := range []string{"widgets", "widgets:" + identity, "widgets:", "gadgets"} {
			list, err := view(t, kcptest.Alice, thief, cluster).Resource(widgets.GroupVersion().WithResource(resource)).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				t.Errorf("the attacker sees %s of %s: %v", resource, cluster, list.Items)
			}
		}
	}
	for _, name := range []string{"widgets", "born"} {
		e, err := thief.Objects(t, kcptest.APIExports).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if hash, _, _ := unstructured.NestedString(e.Object, "status", "identityHash"); hash == identity {
			t.Errorf("the export %s has the identity of another export", name)
		}
	}
}

func TestIdentityHeadersAreRefusedInViews(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	path := "/services/apiexport/" + p.Name + "/widgets/clusters/" + consumer.Name + "/apis/example.org/v1/widgets"
	for header, value := range map[string]string{
		"X-Remote-User": kcptest.Masters.Name, "X-Remote-Group": "system:masters", "Impersonate-User": kcptest.Masters.Name,
		"Impersonate-Group": "system:masters", "X-Kcp-Internal-Deep-Subjectaccessreview": "true", "X-Remote-Extra-Authentication.kcp.io%2fcluster-name": p.Name,
		"X-Kcp-Virtual-Resource-Hops": "1",
	} {
		headers := http.Header{header: {value}}
		if header == "Impersonate-Group" {
			headers.Set("Impersonate-User", kcptest.Alice.Name)
		}
		for _, target := range []string{path, strings.Replace(path, consumer.Name, "*", 1)} {
			if code, body := p.Raw(t, kcptest.Alice, http.MethodGet, target, headers, ""); code != http.StatusForbidden {
				t.Errorf("%s: %d %.200s", header, code, body)
			}
		}
	}
	// Impersonation is refused, also for system:masters and for the same user: requests always act as their sender.
	himself := http.Header{"Impersonate-User": {kcptest.Masters.Name}, "Impersonate-Group": {"system:masters"}}
	if code, body := p.Raw(t, kcptest.Masters, http.MethodGet, path, himself, ""); code != http.StatusForbidden || !strings.Contains(string(body), "do not support impersonation") {
		t.Errorf("impersonation by an administrator: %d %.200s", code, body)
	}
}

func TestClaimLabelsCannotBeForgedThroughSubresources(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	consumer := server.Cluster(t)
	namespaces := consumer.Objects(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	const forged = "claimed.internal.apis.kcp.io/forged"
	patched, err := namespaces.Patch(ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"`+forged+`":"x"}}}`), metav1.PatchOptions{}, "status")
	if err != nil || patched.GetLabels()[forged] != "" {
		t.Errorf("the labels are %v, %v", patched.GetLabels(), err)
	}
	whole, err := namespaces.Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole.SetLabels(map[string]string{forged: "x"})
	finalized, err := namespaces.Update(ctx, whole, metav1.UpdateOptions{}, "finalize")
	if err != nil || finalized.GetLabels()[forged] != "" {
		t.Errorf("finalizing: %v, %v", finalized, err)
	}
}

func TestExportWithNameConflictReachesNoObjects(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	one, two, consumer := provider(t), provider(t), server.Cluster(t)
	bind(t, consumer, one)
	second := binding(two)
	second.SetName("second")
	if _, err := consumer.Objects(t, kcptest.APIBindings).Create(ctx, second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the second binding refers to its export", func(ctx context.Context) error {
		_, err := view(t, kcptest.Masters, two, consumer.Name).Resource(kcptest.APIBindings).Get(ctx, "second", metav1.GetOptions{})
		return err
	})
	inside := view(t, kcptest.Masters, two, consumer.Name).Resource(widgets).Namespace("default")
	_, err := inside.Create(ctx, widget("planted", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = inside.List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestClaimOnAnotherExportIsLimitedByItsPolicy(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	owner, claimant, consumer := provider(t), server.Cluster(t), server.Cluster(t)
	identity := identityOf(t, ctx, owner)
	claimant.Apply(t, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  permissionClaims: [{group: example.org, resource: widgets, verbs: ["*"], identityHash: %s}]
`, identity))
	bind(t, consumer, owner)
	create(t, consumer, "one")
	kubectl := consumer.Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	kubectl.Run(t, "kcp", "bind", "apiexport", claimant.Name+":widgets", "--name", "claims", "--accept-all-permission-claims")
	claimant.Grant(t, kcptest.Alice, "cluster-admin")
	list := func(ctx context.Context) error {
		list, err := view(t, kcptest.Alice, claimant, consumer.Name).Resource(widgets).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("got %v", list.Items)
		}
		return err
	}
	kcptest.Eventually(t, "the provider sees the claimed objects", list)
	policy := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := owner.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, policy, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the policy of the other export applies", func(ctx context.Context) error { return forbidden(list(ctx)) })
	owner.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.org], resources: [widgets], verbs: [get, list]}]
`)
	owner.Kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--group=apis.kcp.io:binding:system:authenticated")
	kcptest.Eventually(t, "the policy allows requests that it covers", list)
	err := view(t, kcptest.Alice, claimant, consumer.Name).Resource(widgets).Namespace("default").Delete(ctx, "one", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

// A provider can have permissions for all paths of its view, but these do not include paths of the server.
func TestViewsDoNotServePathsOfTheServer(t *testing.T) {
	t.Parallel()
	p := provider(t)
	p.Grant(t, kcptest.Alice, "cluster-admin")
	p.Apply(t, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: stepped}
spec: {initializer: true, terminator: true}
`)
	for _, view := range []string{
		"apiexport/" + p.Name + "/widgets/clusters/*", "apiexport/" + p.Name + "/widgets/clusters/" + p.Name,
		"initializingworkspaces/" + p.Name + ":stepped/clusters/*", "terminatingworkspaces/" + p.Name + ":stepped/clusters/*",
	} {
		view = "/services/" + view
		if code, body := p.Raw(t, kcptest.Alice, http.MethodGet, view+"/apis", nil, ""); code != http.StatusOK {
			t.Errorf("%s: %d %.200s", view, code, body)
		}
		for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/statusz", "/index.html"} {
			if code, body := p.Raw(t, kcptest.Alice, http.MethodGet, view+path, nil, ""); code != http.StatusNotFound {
				t.Errorf("%s%s: %d %.200s", view, path, code, body)
			}
		}
		if code, body := p.Raw(t, kcptest.Alice, http.MethodPut, view+"/debug/flags/v", nil, "0"); code != http.StatusNotFound {
			t.Errorf("%s: changing the verbosity of the log: got %d %.200s", view, code, body)
		}
	}
}

// An export of secrets would contain the secrets of all consumers in its view.
func TestBuiltInResourcesCannotBeExported(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	thief := server.Cluster(t)
	thief.Grant(t, kcptest.Alice, "cluster-admin")
	schemas := thief.Dynamic(t, kcptest.Alice).Resource(schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiresourceschemas"})
	for _, built := range []struct{ group, plural, kind string }{
		{"", "secrets", "Secret"}, {"rbac.authorization.k8s.io", "clusterroles", "ClusterRole"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"}, {"core.kcp.io", "logicalclusters", "LogicalCluster"},
		{"apis.kcp.io", "apiexports", "APIExport"},
	} {
		suffix := built.group
		if suffix == "" {
			suffix = "core"
		}
		stolen := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
			"metadata": map[string]any{"name": "v1." + built.plural + "." + suffix, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved"}},
			"spec": map[string]any{
				"group": built.group, "scope": "Cluster", "names": map[string]any{"plural": built.plural, "kind": built.kind, "listKind": built.kind + "List", "singular": strings.ToLower(built.kind)},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"type": "object"}}},
			},
		}}
		if _, err := schemas.Create(ctx, stolen, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "is built in") {
			t.Errorf("%s: got %v", built.plural, err)
		}
	}
}

// An inactive workspace is also inactive for providers.
func TestViewsDoNotReachInactiveConsumers(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	inside := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets).Namespace("default")
	if _, err := inside.Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	mark := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"annotations":{"core.kcp.io/inactive":` + value + `}}}`)
		if _, err := consumer.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mark(`"true"`)
	kcptest.Eventually(t, "the provider is refused", func(ctx context.Context) error {
		_, err := inside.Get(ctx, "one", metav1.GetOptions{})
		return forbidden(err)
	})
	mark("null")
	kcptest.Eventually(t, "the provider is accepted again", func(ctx context.Context) error {
		_, err := inside.Get(ctx, "one", metav1.GetOptions{})
		return err
	})
}
