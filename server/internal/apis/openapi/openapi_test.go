package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func definition(group, plural, kind string) customresources.Installed {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: customresources.ResourceName(plural, group)}}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Description: "What is wanted of " + plural,
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}}}}},
	}}
	crd.Status.AcceptedNames = crd.Spec.Names
	return customresources.Installed{Definition: &customresources.Definition{Hash: group + plural + kind, CRD: crd}}
}

// upstream serves the documents of two built-in versions, and counts its requests.
type upstream struct {
	http.Handler
	requests int
}

func newUpstream() *upstream {
	service := handler3.NewOpenAPIService()
	for path, kind := range map[string]string{"api/v1": "Secret", "apis/example.net/v1": "Thing"} {
		s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Description: "built in"}}
		service.UpdateGroupVersion(path, &spec3.OpenAPI{
			Version: "3.0.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "built in"}},
			Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{"/" + path + "/things": {}}},
			Components: &spec3.Components{Schemas: map[string]*spec.Schema{"io.k8s." + kind: s}},
		})
	}
	u := &upstream{}
	u.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.requests++
		if r.URL.Path == pathV3 {
			service.HandleDiscovery(w, r)
			return
		}
		service.HandleGroupVersion(w, r)
	})
	return u
}

var static = &spec.Swagger{SwaggerProps: spec.SwaggerProps{
	Swagger: "2.0", Info: &spec.Info{}, Paths: &spec.Paths{Paths: map[string]spec.PathItem{"/api/v1/things": {}}},
	Definitions: spec.Definitions{"io.k8s.Secret": spec.Schema{}},
}}

func get(t *testing.T, h http.Handler, cluster, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(logicalcluster.WithName(r.Context(), logicalcluster.Name(cluster))))
	return w
}

func document(t *testing.T, h http.Handler, cluster, path string) map[string]any {
	t.Helper()
	w := get(t, h, cluster, path)
	var content map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &content); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s in %s: %d %s", path, cluster, w.Code, w.Body.String())
	}
	return content
}

var clusters = map[logicalcluster.Name][]customresources.Installed{
	"a": {definition("", "pods", "Pod"), definition("apps", "deployments", "Deployment"), definition("example.org", "gadgets", "Gadget"), definition("example.org", "widgets", "Widget")},
	"b": {definition("example.org", "widgets", "Widget")},
	"c": {definition("example.net", "widgets", "Widget"), definition("example.org", "widgets", "Widget")},
}

func newTest() (*OpenAPI, *upstream, http.Handler) {
	next := newUpstream()
	o := newOpenAPI(func(c logicalcluster.Name) []customresources.Installed { return clusters[c] }, func() *spec.Swagger { return static })
	return o, next, o.WithOpenAPI(next)
}

func TestVersion3DescribesTheAPIsOfTheCluster(t *testing.T) {
	_, _, h := newTest()
	// The parts that kubectl explain uses: the operation at the path of the resource, and the schema of its kind.
	for _, c := range []struct{ cluster, path, resource, model string }{
		{"a", "api/v1", "/api/v1/namespaces/{namespace}/pods", ".v1.Pod"},
		{"a", "apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/deployments", "apps.v1.Deployment"},
		{"a", "apis/example.org/v1", "/apis/example.org/v1/namespaces/{namespace}/gadgets", "org.example.v1.Gadget"},
		{"a", "apis/example.org/v1", "/apis/example.org/v1/namespaces/{namespace}/widgets", "org.example.v1.Widget"},
		{"b", "apis/example.org/v1", "/apis/example.org/v1/namespaces/{namespace}/widgets", "org.example.v1.Widget"},
		{"c", "apis/example.net/v1", "/apis/example.net/v1/namespaces/{namespace}/widgets", "net.example.v1.Widget"},
		{"a", "api/v1", "/api/v1/things", "io.k8s.Secret"},
		{"b", "api/v1", "/api/v1/things", "io.k8s.Secret"},
		{"c", "apis/example.net/v1", "/apis/example.net/v1/things", "io.k8s.Thing"},
	} {
		content := document(t, h, c.cluster, pathV3+"/"+c.path)
		if content["paths"].(map[string]any)[c.resource] == nil {
			t.Errorf("%s of %s has no path %s", c.path, c.cluster, c.resource)
		}
		if content["components"].(map[string]any)["schemas"].(map[string]any)[c.model] == nil {
			t.Errorf("%s of %s has no schema %s", c.path, c.cluster, c.model)
		}
	}
	if text := get(t, h, "b", pathV3+"/apis/example.org/v1").Body.String(); strings.Contains(text, "gadgets") {
		t.Error("b sees a definition of a")
	}
	for cluster, want := range map[string]string{
		"a": "[api/v1 apis/apps/v1 apis/example.net/v1 apis/example.org/v1]", "b": "[api/v1 apis/example.net/v1 apis/example.org/v1]", "d": "[api/v1 apis/example.net/v1]",
	} {
		paths := document(t, h, cluster, pathV3)["paths"].(map[string]any)
		var got []string
		for _, path := range []string{"api/v1", "apis/apps/v1", "apis/example.net/v1", "apis/example.org/v1"} {
			if paths[path] != nil {
				got = append(got, path)
			}
		}
		if fmt.Sprint(got) != want || len(got) != len(paths) {
			t.Errorf("paths in %s: got %v, want %s", cluster, paths, want)
		}
	}
}

func TestLinksInTheRootAreURLsOfCacheableDocuments(t *testing.T) {
	_, _, h := newTest()
	for path, item := range document(t, h, "a", pathV3)["paths"].(map[string]any) {
		link := item.(map[string]any)["serverRelativeURL"].(string)
		w := get(t, h, "a", link)
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: got %d, cache control %q", path, w.Code, w.Header().Get("Cache-Control"))
		}
		if w := get(t, h, "a", link, "If-None-Match", w.Header().Get("Etag")); w.Code != http.StatusNotModified {
			t.Errorf("%s again: got %d, want 304", path, w.Code)
		}
	}
	root := get(t, h, "a", pathV3)
	if w := get(t, h, "a", pathV3, "If-None-Match", root.Header().Get("Etag")); w.Code != http.StatusNotModified {
		t.Errorf("the root again: got %d, want 304", w.Code)
	}
}

func TestEqualDefinitionsAreDescribedOnce(t *testing.T) {
	o, next, h := newTest()
	for range 3 {
		for _, cluster := range []string{"a", "b", "c"} {
			document(t, h, cluster, pathV3)
			document(t, h, cluster, pathV3+"/apis/example.org/v1")
		}
	}
	// b and c share the group example.org; a has its own.
	if got := fmt.Sprint(o.v3.Len(), o.groups.Len(), o.versions.Len()); got != "3 5 5" {
		t.Errorf("sets, groups and versions: got %s, want 3 5 5", got)
	}
	if next.requests != 5 {
		t.Errorf("upstream got %d requests, want 5: three roots and two versions to which definitions add", next.requests)
	}
}

func TestVersion2DescribesTheAPIsOfTheCluster(t *testing.T) {
	_, _, h := newTest()
	for cluster, want := range map[string]int{"a": 4, "b": 1, "c": 2, "d": 0} {
		content := document(t, h, cluster, pathV2)
		paths, models := content["paths"].(map[string]any), content["definitions"].(map[string]any)
		if paths["/api/v1/things"] == nil || models["io.k8s.Secret"] == nil {
			t.Errorf("%s lacks the built-in types", cluster)
		}
		got := 0
		for _, path := range []string{
			"/api/v1/namespaces/{namespace}/pods", "/apis/apps/v1/namespaces/{namespace}/deployments", "/apis/example.org/v1/namespaces/{namespace}/gadgets",
			"/apis/example.org/v1/namespaces/{namespace}/widgets", "/apis/example.net/v1/namespaces/{namespace}/widgets",
		} {
			if paths[path] != nil {
				got++
			}
		}
		if got != want {
			t.Errorf("%s has %d custom resources, want %d", cluster, got, want)
		}
	}
}

func TestSchemasAreResolvedPerCluster(t *testing.T) {
	o, _, _ := newTest()
	builtin := resolver.NewDefinitionsSchemaResolver(generatedopenapi.GetOpenAPIDefinitions, legacyscheme.Scheme)
	widget := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	s, err := o.SchemaResolver("b", builtin).ResolveSchema(widget)
	if err != nil {
		t.Fatal(err)
	}
	if s.Properties["spec"].Properties["size"].Type[0] != "integer" || s.Properties["metadata"].Properties["name"].Type[0] != "string" {
		t.Errorf("got %v", s)
	}
	if _, err := o.SchemaResolver("d", builtin).ResolveSchema(widget); err == nil {
		t.Error("a cluster without the definition resolved it")
	}
	if _, err := o.SchemaResolver("a", builtin).ResolveSchema(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}); err != nil {
		t.Errorf("a kind of the core group: %v", err)
	}
}

func TestViewsDescribeAllThatTheyServe(t *testing.T) {
	list := func(c logicalcluster.Name) []customresources.Installed { return clusters[c] }
	things := func(logicalcluster.Name) sets.Set[schema.GroupVersion] {
		return sets.New(schema.GroupVersion{Group: "example.net", Version: "v1"})
	}
	for name, c := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"of custom resources only": {Of(list).WithOpenAPI(NoBuiltIn), "[api apis apis/example.org apis/example.org/v1 version]"},
		"of built-in types, too": {
			ForViews(list, things).WithOpenAPI(newUpstream()), "[api apis apis/example.net apis/example.net/v1 apis/example.org apis/example.org/v1 version]",
		},
	} {
		paths := document(t, c.handler, "b", pathV3)["paths"].(map[string]any)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(paths))); got != c.want {
			t.Errorf("a view %s lists %s, want %s", name, got, c.want)
		}
		for path, want := range map[string]string{
			"api": "/api/", "apis": "/apis/", "apis/example.org": "/apis/example.org/", "version": "/version/", "apis/example.org/v1": "/apis/example.org/v1/widgets",
		} {
			link := paths[path].(map[string]any)["serverRelativeURL"].(string)
			if found := document(t, c.handler, "b", link)["paths"].(map[string]any); found[want] == nil {
				t.Errorf("%s of a view %s describes %v, want %s", path, name, found, want)
			}
		}
	}
}
