package cachedresources

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// grant gives a user permissions in a cluster, and permission to enter it.
func grant(t *testing.T, c *kcptest.Cluster, user kcptest.User, rules string) {
	t.Helper()
	name := "granted-" + kcptest.Suffix()
	c.Apply(t, fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s}\nrules:\n%s\n", name, rules))
	c.Kubectl(t, "create", "clusterrolebinding", name, "--clusterrole="+name, "--user="+user.Name)
	c.Kubectl(t, "create", "clusterrolebinding", name+"-entry", "--clusterrole="+kcptest.EntryRole, "--user="+user.Name)
}

func list(t *testing.T, client dynamic.Interface) error {
	t.Helper()
	_, err := client.Resource(regions).List(kcptest.Context(t), metav1.ListOptions{})
	return err
}

func TestReadingPublishedObjectsRequiresPermission(t *testing.T) {
	t.Parallel()
	p := provider(t)
	c := consumer(t, p)
	stranger := server.Cluster(t)
	for _, path := range []string{
		"/clusters/" + c.Name + "/apis/example.org/v1/regions", "/clusters/" + c.Name + "/apis/example.org/v1/regions/north",
		"/services/replication/" + p.Name + "/regions/clusters/" + c.Name + "/apis/example.org/v1/regions",
		"/services/replication/" + p.Name + "/regions/clusters/" + c.Name + "/apis/example.org/v1/regions?watch=true",
		"/services/replication/" + p.Name + "/regions/clusters/" + c.Name + "/apis",
		"/clusters/" + p.Name + "/apis/cache.kcp.io/v1alpha1/clustercachedresources",
	} {
		for _, user := range []kcptest.User{kcptest.Anonymous, kcptest.Alice} {
			code, body := c.Raw(t, user, http.MethodGet, path, nil, "")
			if code != http.StatusForbidden && code != http.StatusUnauthorized || strings.Contains(string(body), "Oslo") {
				t.Errorf("%s reads %s: got %d %s", user.Name, path, code, body)
			}
		}
	}
	code, body := c.Raw(t, kcptest.Anonymous, http.MethodGet, "/services/replication/"+p.Name+"/regions/clusters/"+c.Name+"/apis/example.org/v1/regions",
		http.Header{"X-Remote-User": {"root-of-trust"}, "X-Remote-Group": {"system:masters"}, "X-Kcp-Virtual-Resource-Hops": {"1"}}, "")
	if code != http.StatusForbidden && code != http.StatusUnauthorized {
		t.Errorf("identity headers were accepted: %d %s", code, body)
	}
	// The error does not depend on the existence of the slice for users without permission to read it.
	refusal := list(t, view(t, kcptest.Alice, p, c.Name))
	if refusal == nil {
		t.Fatal("Alice reads without permission")
	}
	unknown := strings.ReplaceAll(refusal.Error(), "regions", "")
	client := server.DynamicAt(t, kcptest.Alice, "/services/replication/"+p.Name+"/nothing/clusters/"+c.Name)
	if got := strings.ReplaceAll(strings.ReplaceAll(list(t, client).Error(), "regions", ""), "nothing", ""); got != unknown {
		t.Errorf("got error %q for a missing slice, and %q for others", got, unknown)
	}
	grant(t, p, kcptest.Alice, "- {apiGroups: [apis.kcp.io], resources: [apiexports/content], resourceNames: [regions], verbs: [list]}")
	kcptest.Eventually(t, "the content can be listed", func(context.Context) error { return list(t, view(t, kcptest.Alice, p, c.Name)) })
	_, err := view(t, kcptest.Alice, p, c.Name).Resource(regions).Get(kcptest.Context(t), "north", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(t, c.Dynamic(t, kcptest.Alice)), metav1.StatusReasonForbidden)
	// Where the export is not bound, no user finds objects, also not in the workspace of the provider.
	for _, where := range []*kcptest.Cluster{stranger, p, server.Named("nowhere")} {
		kcptest.WantReason(t, list(t, view(t, kcptest.Masters, p, where.Name)), metav1.StatusReasonForbidden)
	}
	kcptest.WantReason(t, list(t, view(t, kcptest.Masters, p, "*")), metav1.StatusReasonBadRequest)
	other := view(t, kcptest.Masters, p, c.Name).Resource(regions.GroupVersion().WithResource("secrets"))
	_, err = other.List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = view(t, kcptest.Masters, p, c.Name).Resource(kcptest.APIBindings).List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestConsumersCannotWriteObjectsOfProvider(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	c := consumer(t, p)
	before, err := p.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofExport := server.DynamicAt(t, kcptest.Masters, "/services/apiexport/"+p.Name+"/regions/clusters/"+c.Name)
	if err := list(t, ofExport); err != nil {
		t.Errorf("the provider of the export cannot list: %v", err)
	}
	for what, client := range map[string]dynamic.ResourceInterface{
		"the consumer": c.Objects(t, regions), "the slice": view(t, kcptest.Masters, p, c.Name).Resource(regions), "the export": ofExport.Resource(regions),
	} {
		patch := []byte(`{"apiVersion":"example.org/v1","kind":"Region","metadata":{"name":"north"},"spec":{"city":"Gotham"}}`)
		attempts := map[string]func() error{
			"create": func() error {
				_, err := client.Create(ctx, region("new", "x", "yes"), metav1.CreateOptions{})
				return err
			},
			"update": func() error { _, err := client.Update(ctx, before, metav1.UpdateOptions{}); return err },
			"status": func() error { _, err := client.UpdateStatus(ctx, before, metav1.UpdateOptions{}); return err },
			"patch": func() error {
				_, err := client.Patch(ctx, "north", types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			},
			"apply": func() error {
				_, err := client.Patch(ctx, "north", types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "x"})
				return err
			},
			"delete": func() error { return client.Delete(ctx, "north", metav1.DeleteOptions{}) },
			"deletecollection": func() error {
				return client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			},
		}
		for verb, attempt := range attempts {
			t.Run(what+" "+verb, func(t *testing.T) { kcptest.WantReason(t, attempt(), metav1.StatusReasonMethodNotAllowed) })
		}
	}
	// Deleting the binding deletes no objects of the provider.
	if err := c.Objects(t, kcptest.APIBindings).Delete(ctx, "regions", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, c.Objects(t, kcptest.APIBindings), "regions")
	kcptest.Eventually(t, "the objects are no longer visible", func(ctx context.Context) error {
		_, err := c.Objects(t, regions).List(ctx, metav1.ListOptions{})
		return kcptest.Gone(err)
	})
	after, err := p.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
	if err != nil || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the provider's object was changed: %v (%v)", after, err)
	}
}

func TestPublishedObjectsContainOnlyExportedFields(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	if _, err := p.Objects(t, regions).Patch(ctx, "north", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kcp.io/path":"x","kcp.io/shard":"x","kcp.io/cluster":"x","cache.kcp.io/original-resource-UID":"x","note":"kept"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c := consumer(t, p)
	got, err := c.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if annotations := got.GetAnnotations(); len(annotations) != 2 || annotations["note"] != "kept" || annotations["kcp.io/cluster"] != c.Name {
		t.Errorf("got annotations %v", annotations)
	}
}

// takeOver makes the attacker's workspace export the ClusterCachedResource of a slice, with an identity.
func takeOver(t *testing.T, attacker *kcptest.Cluster, user kcptest.User, path, identity string) error {
	t.Helper()
	attacker.Apply(t, shownSchema+"---"+exportOfRegions(identity))
	slice := kcptest.Parse(t, sliceOfRegions)
	if err := unstructured.SetNestedField(slice.Object, path, "spec", "clusterCachedResource", "path"); err != nil {
		t.Fatal(err)
	}
	_, err := attacker.Dynamic(t, user).Resource(slices).Create(kcptest.Context(t), slice, metav1.CreateOptions{})
	return err
}

func TestCopiedIdentityGivesNoAccess(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	victim, attacker := provider(t), server.Cluster(t)
	attacker.Grant(t, kcptest.Alice, "cluster-admin")
	identity := kcptest.WaitForStatus(t, victim.Objects(t, cached), "regions", "", "identityHash")
	err := takeOver(t, attacker, kcptest.Alice, victim.Name, identity)
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err == nil || !strings.Contains(err.Error(), "no permission to bind to ClusterCachedResource "+victim.Name+":regions") {
		t.Fatalf("got error %v", err)
	}
	refusal := strings.ReplaceAll(err.Error(), victim.Name, "")
	if err := takeOver(t, attacker, kcptest.Alice, "nowhere", identity); err == nil || strings.ReplaceAll(err.Error(), "nowhere", "") != refusal {
		t.Errorf("got error %q for a missing workspace, and %q for others", err, refusal)
	}
	// The attacker's own objects with the copied identity are not visible either.
	attacker.Apply(t, definition)
	attacker.WaitForDefinition(t, "regions.example.org")
	attacker.Apply(t, cachedRegions+"---"+sliceOfRegions)
	kcptest.WaitForStatus(t, attacker.Objects(t, cached), "regions", "Ready", "phase")
	c := server.Cluster(t)
	if _, err := c.Objects(t, kcptest.APIBindings).Create(ctx, binding(attacker), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, c.Objects(t, kcptest.APIBindings), "regions", "Bound", "phase")
	kcptest.Eventually(t, "the resource exists, and its objects are not visible", func(context.Context) error {
		code, body := c.Raw(t, kcptest.Masters, http.MethodGet, "/clusters/"+c.Name+"/apis/example.org/v1/regions", nil, "")
		if code != http.StatusServiceUnavailable || !strings.Contains(string(body), "another identity") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	// Only the server writes the status, which contains identities.
	for _, resource := range []string{"clustercachedresources", "clustercachedresourceendpointslices"} {
		_, err := attacker.Dynamic(t, kcptest.Alice).Resource(cached.GroupVersion().WithResource(resource)).Patch(ctx, "regions", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"status":{"identityHash":%q}}`, identity)), metav1.PatchOptions{}, "status")
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	}
	// A user with permission to publish the objects can do so.
	grant(t, victim, kcptest.Alice, "- {apiGroups: [cache.kcp.io], resources: [clustercachedresources], resourceNames: [regions], verbs: [bind]}")
	attacker.Kubectl(t, "delete", "clustercachedresourceendpointslice", "regions")
	kcptest.Eventually(t, "the slice can be created", func(context.Context) error {
		return takeOver(t, attacker, kcptest.Alice, victim.Name, identity)
	})
	kcptest.Eventually(t, "the objects are visible", func(ctx context.Context) error {
		_, err := c.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
		return err
	})
}

func TestPublishingObjectsRequiresPermissionToRead(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	p.Kubectl(t, "delete", "clustercachedresource", "regions")
	grant(t, p, kcptest.Alice, "- {apiGroups: [cache.kcp.io], resources: ['*'], verbs: ['*']}\n- {apiGroups: [example.org], resources: [regions], resourceNames: [north], verbs: [get, list, watch]}")
	try := func() error {
		_, err := p.Dynamic(t, kcptest.Alice).Resource(cached).Create(ctx, kcptest.Parse(t, cachedRegions), metav1.CreateOptions{})
		return err
	}
	kcptest.Eventually(t, "the regions are refused", func(context.Context) error {
		if err := try(); err == nil || !strings.Contains(err.Error(), "missing verb='get' permission on regions.example.org") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	grant(t, p, kcptest.Alice, "- {apiGroups: [example.org], resources: [regions], verbs: [get, list, watch]}")
	kcptest.Eventually(t, "it can be created", func(context.Context) error { return try() })
	// A slice also requires the permission for the export.
	slice := kcptest.Parse(t, sliceOfRegions)
	slice.SetName("second")
	_, err := p.Dynamic(t, kcptest.Alice).Resource(slices).Create(ctx, slice, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err != nil && !strings.Contains(err.Error(), "no permission to bind to export") {
		t.Errorf("got error %v", err)
	}
}

func TestSliceServesOnlyItsExport(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "", "identityHash")
	p.Apply(t, strings.Replace(exportOfRegions(identity), "metadata: {name: regions}", "metadata: {name: other}", 1))
	c := server.Cluster(t)
	b := binding(p)
	if err := unstructured.SetNestedField(b.Object, "other", "spec", "reference", "export", "name"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Objects(t, kcptest.APIBindings).Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, c.Objects(t, kcptest.APIBindings), "regions", "Bound", "phase")
	kcptest.Eventually(t, "the objects are not visible", func(context.Context) error {
		code, body := c.Raw(t, kcptest.Masters, http.MethodGet, "/clusters/"+c.Name+"/apis/example.org/v1/regions", nil, "")
		if code != http.StatusServiceUnavailable || !strings.Contains(string(body), "another export") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	kcptest.WantReason(t, list(t, view(t, kcptest.Masters, p, c.Name)), metav1.StatusReasonForbidden)
}
