package cachedresources

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// names returns the names of objects, and fails the test unless all have the annotation of a cluster.
func names(t *testing.T, list *unstructured.UnstructuredList, in *kcptest.Cluster) string {
	t.Helper()
	var all []string
	for _, item := range list.Items {
		all = append(all, item.GetName())
		shownIn(t, &item, in)
	}
	return strings.Join(all, " ")
}

func shownIn(t *testing.T, obj *unstructured.Unstructured, in *kcptest.Cluster) {
	t.Helper()
	if cluster := obj.GetAnnotations()["kcp.io/cluster"]; cluster != in.Name {
		t.Errorf("%s has the cluster %q, want %q", obj.GetName(), cluster, in.Name)
	}
	if cost, found, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "cost"); found {
		t.Errorf("%s has a field that is not in the exported schema: cost %v", obj.GetName(), cost)
	}
}

func TestConsumersReadObjectsOfProvider(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	for _, c := range []*kcptest.Cluster{consumer(t, p), consumer(t, p)} {
		list, err := c.Objects(t, regions).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, list, c); got != "north" {
			t.Errorf("got regions %q, want those that the label selector selects", got)
		}
		got, err := c.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shownIn(t, got, c)
		if city, _, _ := unstructured.NestedString(got.Object, "spec", "city"); city != "Oslo" {
			t.Errorf("got city %q", city)
		}
		if open, _, _ := unstructured.NestedBool(got.Object, "spec", "open"); !open {
			t.Error("the default of the exported schema is missing")
		}
		_, err = c.Objects(t, regions).Get(ctx, "secret", metav1.GetOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
		out := c.Kubectl(t, "get", "rg")
		if !strings.Contains(out, "CITY") || !strings.Contains(out, "Oslo") {
			t.Errorf("got output\n%s", out)
		}
		list, err = view(t, kcptest.Masters, p, c.Name).Resource(regions).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, list, c); got != "north" {
			t.Errorf("the virtual workspace lists %q", got)
		}
	}
	// The provider's own objects are unchanged.
	mine, err := p.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
	if err != nil || mine.GetAnnotations()["kcp.io/cluster"] != p.Name {
		t.Errorf("the provider got %v (%v)", mine, err)
	}
}

// next returns the next event that is not a bookmark.
func next(t *testing.T, w watch.Interface, kind watch.EventType, name string, in *kcptest.Cluster) {
	t.Helper()
	for event := range w.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type != kind || obj.GetName() != name {
			t.Fatalf("got %v, want %s of %s", event, kind, name)
		}
		shownIn(t, obj, in)
		return
	}
	t.Fatalf("the watch ended before %s of %s", kind, name)
}

func TestConsumersWatchObjectsOfProvider(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	a, b := consumer(t, p), consumer(t, p)
	for what, client := range map[*kcptest.Cluster]interface {
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{a: a.Objects(t, regions), b: view(t, kcptest.Masters, p, b.Name).Resource(regions)} {
		w, err := client.Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		next(t, w, watch.Added, "north", what)
		change := func(name, patch string) {
			t.Helper()
			if _, err := p.Objects(t, regions).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		change("north", fmt.Sprintf(`{"spec":{"city":"Bergen of %s"}}`, what.Name))
		next(t, w, watch.Modified, "north", what)
		change("secret", `{"spec":{"city":"still unknown"}}`)
		change("secret", `{"metadata":{"labels":{"public":"yes"}}}`)
		next(t, w, watch.Added, "secret", what)
		change("secret", `{"metadata":{"labels":{"public":"no"}}}`)
		next(t, w, watch.Deleted, "secret", what)
	}
}

func TestDiscoveryAndOpenAPIDescribeVirtualResourcesAsReadOnly(t *testing.T) {
	t.Parallel()
	p := provider(t)
	c := consumer(t, p)
	for _, url := range []string{
		"/clusters/" + c.Name, "/services/replication/" + p.Name + "/regions/clusters/" + c.Name, "/services/apiexport/" + p.Name + "/regions/clusters/" + c.Name,
	} {
		code, body := c.Raw(t, kcptest.Masters, http.MethodGet, url+"/apis/example.org/v1", nil, "")
		var list metav1.APIResourceList
		if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s", url, code, body)
		}
		got := map[string]string{}
		for _, r := range list.APIResources {
			got[r.Name] = strings.Join(r.Verbs, " ")
		}
		if got["regions"] != "get list watch" || got["regions/status"] != "get" || len(got) != 2 {
			t.Errorf("%s: discovery has %v", url, got)
		}
		code, body = c.Raw(t, kcptest.Masters, http.MethodGet, url+"/openapi/v3/apis/example.org/v1", nil, "")
		var document struct {
			Paths map[string]map[string]any `json:"paths"`
		}
		if err := json.Unmarshal(body, &document); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s", url, code, body)
		}
		for path, operations := range document.Paths {
			for operation := range operations {
				if operation != "get" && operation != "parameters" {
					t.Errorf("%s: OpenAPI describes %s of %s", url, operation, path)
				}
			}
		}
		if document.Paths["/apis/example.org/v1/regions/{name}"]["get"] == nil {
			t.Errorf("%s: OpenAPI describes %v", url, document.Paths)
		}
	}
	if out := c.Kubectl(t, "explain", "regions.spec.city"); !strings.Contains(out, "Where the region is.") {
		t.Errorf("unexpected output of kubectl explain\n%s", out)
	}
}

func TestStatusReportsPublishedResourceAndEndpoints(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	kcptest.WaitForCondition(t, p.Objects(t, cached), "regions", "ResourceValid", "True", "")
	kcptest.WaitForCondition(t, p.Objects(t, cached), "regions", "IdentityValid", "True", "")
	kcptest.WaitForCondition(t, p.Objects(t, cached), "regions", "ReplicationStarted", "True", "Started")
	kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "Ready", "phase")
	kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "1", "resourceCounts", "cache")
	kcptest.WaitForCondition(t, p.Objects(t, slices), "regions", "ResourceValid", "True", "")
	kcptest.WaitForCondition(t, p.Objects(t, slices), "regions", "APIExportValid", "True", "")
	if listed, err := kcptest.StatusField(ctx, p.Objects(t, slices), "regions", "endpoints"); err != nil || listed != "" {
		t.Errorf("endpoints without consumers: got %s (%v)", listed, err)
	}
	consumer(t, p)
	if listed := kcptest.WaitForStatus(t, p.Objects(t, slices), "regions", "", "endpoints"); !strings.HasSuffix(listed, "/services/replication/"+p.Name+"/regions]]") {
		t.Errorf("got endpoints %s", listed)
	}
	if _, err := p.Objects(t, regions).Create(ctx, region("south", "Rome", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "2", "resourceCounts", "local")

	other := server.Cluster(t)
	other.Apply(t, strings.Replace(definition, "scope: Cluster", "scope: Namespaced", 1))
	other.WaitForDefinition(t, "regions.example.org")
	_, err := other.Objects(t, cached).Create(ctx, kcptest.Parse(t, cachedRegions), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	other.Kubectl(t, "delete", "crd", "regions.example.org")
	other.Apply(t, cachedRegions+"---"+sliceOfRegions)
	kcptest.WaitForCondition(t, other.Objects(t, cached), "regions", "ResourceValid", "False", "ClusterCachedResourceInvalidReference")
	kcptest.WaitForStatus(t, other.Objects(t, cached), "regions", "Initializing", "phase")
	kcptest.WaitForCondition(t, other.Objects(t, slices), "regions", "APIExportValid", "False", "APIExportNotFound")
	kcptest.WaitForCondition(t, other.Objects(t, slices), "regions", "ResourceValid", "False", "ClusterCachedResourceInvalidReference")
	second := kcptest.Parse(t, cachedRegions)
	second.SetName("second")
	_, err = other.Objects(t, cached).Create(ctx, second, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	other.Kubectl(t, "delete", "clustercachedresource", "regions")
	kcptest.WaitForCondition(t, other.Objects(t, slices), "regions", "ResourceValid", "False", "ClusterCachedResourceNotFound")
}
