package apisharing

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// bindAndWatch creates a binding in a cluster, and returns after the watch event that says that it is bound.
func bindAndWatch(t *testing.T, consumer, provider *kcptest.Cluster) {
	t.Helper()
	ctx := kcptest.Context(t)
	client := consumer.Objects(t, kcptest.APIBindings)
	made, err := client.Create(ctx, binding(provider), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watchBinding(t, consumer, made.GetResourceVersion(), func(e watch.Event) bool {
		phase, _, _ := unstructured.NestedString(e.Object.(*unstructured.Unstructured).Object, "status", "phase")
		return phase == "Bound"
	})
}

// unbindAndWatch deletes the binding of a consumer, and returns after the watch event of its deletion.
func unbindAndWatch(t *testing.T, consumer *kcptest.Cluster) {
	t.Helper()
	ctx := kcptest.Context(t)
	client := consumer.Objects(t, kcptest.APIBindings)
	bound, err := client.Get(ctx, "widgets", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	watchBinding(t, consumer, bound.GetResourceVersion(), func(e watch.Event) bool { return e.Type == watch.Deleted })
}

// watchBinding returns after the event of the binding for which last returns true.
func watchBinding(t *testing.T, consumer *kcptest.Cluster, from string, last func(watch.Event) bool) {
	t.Helper()
	watching, err := consumer.Objects(t, kcptest.APIBindings).Watch(kcptest.Context(t),
		metav1.ListOptions{ResourceVersion: from, FieldSelector: "metadata.name=widgets"})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for e := range watching.ResultChan() {
		if _, ok := e.Object.(*unstructured.Unstructured); !ok {
			t.Fatalf("the watch delivered %v", e)
		}
		if last(e) {
			return
		}
	}
	t.Fatal("the watch ended before the expected event")
}

func TestBoundResourcesAreServedImmediately(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	for range 25 {
		consumer := server.Cluster(t)
		bindAndWatch(t, consumer, p)
		if _, err := consumer.Objects(t, widgets).Namespace("default").Create(ctx, widget("one", 1), metav1.CreateOptions{}); err != nil {
			t.Errorf("as the consumer: %v", err)
		}
		if _, err := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets).List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("as the provider: %v", err)
		}
	}
}

func TestPolicyOfProviderAppliesToFirstRequest(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	limit := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, limit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		consumer := server.Cluster(t)
		consumer.Grant(t, kcptest.Alice, "cluster-admin")
		client := consumer.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default")
		if _, err := consumer.Objects(t, kcptest.APIBindings).Create(ctx, binding(p), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for bound := false; !bound; {
			_, err := client.Create(ctx, widget("planted-"+kcptest.Suffix(), 1), metav1.CreateOptions{})
			if bound = apierrors.IsForbidden(err); !bound && !apierrors.IsNotFound(err) {
				t.Fatalf("a user of a consumer did what the policy of the provider forbids: %v", err)
			}
		}
	}
}

// documents are the discovery and OpenAPI documents that describe an API, each with a text about widgets.
var documents = map[string]string{
	"/api":                            "",
	"/apis":                           `"example.org"`,
	"/apis/example.org":               `"example.org/v1"`,
	"/apis/example.org/v1":            `"widgets/status"`,
	"/openapi/v3":                     "apis/example.org/v1",
	"/openapi/v3/apis/example.org/v1": "How large it is.",
}

// aggregated requests all APIs in one document.
var aggregated = http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}

// wantDocuments fails the test unless all documents below a path describe an API, or none if want is false.
func wantDocuments(t *testing.T, c *kcptest.Cluster, below string, documents map[string]string, want bool) {
	t.Helper()
	check := func(path string, header http.Header, says string) {
		code, body := c.Raw(t, kcptest.Masters, http.MethodGet, below+path, header, "")
		if got := code == http.StatusOK && strings.Contains(string(body), says); says != "" && got != want {
			t.Errorf("%s %v: got %d, describes %s: %t, want %t", path, header, code, says, got, want)
		}
	}
	for path, says := range documents {
		check(path, nil, says)
	}
	check("/apis", aggregated, documents["/apis"])
	check("/api", aggregated, documents["/api/v1"])
}

func TestDiscoveryAndOpenAPIDescribeBoundAPIsImmediately(t *testing.T) {
	t.Parallel()
	p := provider(t)
	for range 10 {
		consumer := server.Cluster(t)
		for range 3 {
			bindAndWatch(t, consumer, p)
			wantDocuments(t, consumer, "/clusters/"+consumer.Name, documents, true)
			unbindAndWatch(t, consumer)
			wantDocuments(t, consumer, "/clusters/"+consumer.Name, documents, false)
		}
	}
}

func TestDiscoveryAndOpenAPIOfViewsDescribeExportsImmediately(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	claimed := map[string]string{"/api": `["v1"]`, "/api/v1": `"configmaps"`, "/openapi/v3": "api/v1"}
	below := "/services/apiexport/" + p.Name + "/widgets/clusters/*"
	for range 25 {
		for claims, want := range map[string]bool{`[{"resource":"configmaps","verbs":["get"]}]`: true, "[]": false} {
			patch := []byte(`{"spec":{"permissionClaims":` + claims + `}}`)
			if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			wantDocuments(t, p, below, claimed, want)
		}
	}
}
