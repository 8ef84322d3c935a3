package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var update = flag.Bool("update", false, "write the golden files")

const aggregatedV2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// definition returns a definition whose versions are all served, the first one stored.
func definition(group, plural, kind string, versions ...string) customresources.Installed {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: customresources.ResourceName(plural, group)}}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List", ShortNames: []string{plural[:2]}, Categories: []string{"all"},
	}
	for i, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true, Storage: i == 0})
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	return customresources.Installed{Definition: &customresources.Definition{Hash: fmt.Sprint(group, plural, kind, versions), CRD: crd}}
}

func withSubresources(i customresources.Installed) customresources.Installed {
	i.CRD.Spec.Scope = apiextensionsv1.ClusterScoped
	i.CRD.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{}, Scale: &apiextensionsv1.CustomResourceSubresourceScale{},
	}
	return i
}

// builtin is a small set of the resources that compiled code serves.
func builtin() []apidiscoveryv2.APIGroupDiscovery {
	resource := func(gv schema.GroupVersion, name, kind string) apidiscoveryv2.APIVersionDiscovery {
		return apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{{
			Resource: name, SingularResource: strings.ToLower(kind), Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"create", "list", "watch", "delete"},
			ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind},
		}}}
	}
	return []apidiscoveryv2.APIGroupDiscovery{
		{Versions: []apidiscoveryv2.APIVersionDiscovery{resource(schema.GroupVersion{Version: "v1"}, "secrets", "Secret")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "rbac.authorization.k8s.io"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			resource(schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "roles", "Role")}},
	}
}

// upstream responds like the server below for built-in types.
var upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case "/api/v1":
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"secrets","singularName":"secret",`+
			`"namespaced":true,"kind":"Secret","verbs":["create","list","watch","delete"],"storageVersionHash":"built-in"}]}`)
	default:
		http.Error(w, "from upstream: "+r.URL.Path, http.StatusNotFound)
	}
})

func discoveryOf(clusters map[logicalcluster.Name][]customresources.Installed) *Discovery {
	return &Discovery{
		builtin: builtin(), sets: lru.New(maxSets),
		custom: func(c logicalcluster.Name) []customresources.Installed { return clusters[c] },
		all: func() (all []*customresources.Definition) {
			for _, list := range clusters {
				for _, i := range list {
					all = append(all, i.Definition)
				}
			}
			return all
		},
	}
}

func get(h http.Handler, cluster, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := logicalcluster.Cluster{Name: logicalcluster.Name(cluster)}
	if cluster == "*" {
		c = logicalcluster.Cluster{Wildcard: true}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(logicalcluster.WithCluster(r.Context(), c)))
	return w
}

func installed() []customresources.Installed {
	gone := definition("zoo.example.org", "ants", "Ant", "v1")
	gone.Terminating = true
	return []customresources.Installed{
		gone,
		definition("", "pods", "Pod", "v1", "v2"),
		definition("apps", "deployments", "Deployment", "v1"),
		withSubresources(definition("example.org", "widgets", "Widget", "v1alpha1", "v1", "v1beta1")),
	}
}

func TestDocumentsOfACluster(t *testing.T) {
	h := discoveryOf(map[logicalcluster.Name][]customresources.Installed{"a": installed()}).WithDiscovery(upstream)
	for name, c := range map[string]struct{ path, accept string }{
		"api":                      {"/api", ""},
		"apis":                     {"/apis", ""},
		"api-v1":                   {"/api/v1", ""},
		"api-v2":                   {"/api/v2", ""},
		"group":                    {"/apis/example.org", ""},
		"version":                  {"/apis/example.org/v1alpha1", ""},
		"terminating":              {"/apis/zoo.example.org/v1/", ""},
		"aggregated-api":           {"/api", aggregatedV2},
		"aggregated-apis":          {"/apis", aggregatedV2},
		"built-in":                 {"/apis/rbac.authorization.k8s.io/v1", ""},
		"unknown-group":            {"/apis/nowhere", ""},
		"version-that-is-not-here": {"/apis/example.org/v7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(h, "a", c.path, "Accept", c.accept)
			var got bytes.Buffer
			fmt.Fprintf(&got, "%d %s\n", w.Code, w.Header().Get("Content-Type"))
			if err := json.Indent(&got, w.Body.Bytes(), "", "  "); err != nil {
				got.Write(w.Body.Bytes())
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.path, diff)
			}
		})
	}
}

func TestClustersSeeTheirOwnAPIs(t *testing.T) {
	d := discoveryOf(map[logicalcluster.Name][]customresources.Installed{"a": installed(), "b": installed(), "c": nil})
	h := d.WithDiscovery(upstream)
	for cluster, want := range map[string]bool{"a": true, "b": true, "c": false, "*": false} {
		for _, accept := range []string{"", aggregatedV2} {
			if got := strings.Contains(get(h, cluster, "/apis", "Accept", accept).Body.String(), "example.org"); got != want {
				t.Errorf("group example.org in %s: got %t, want %t", cluster, got, want)
			}
		}
	}
	if d.sets.Len() != 2 {
		t.Errorf("%d sets of documents, want 2: one with and one without definitions", d.sets.Len())
	}
}

func TestAggregatedDiscoveryIsNotSentTwice(t *testing.T) {
	clusters := map[logicalcluster.Name][]customresources.Installed{"a": installed(), "b": installed()}
	h := discoveryOf(clusters).WithDiscovery(upstream)
	first := get(h, "a", "/apis", "Accept", aggregatedV2)
	tag := first.Header().Get("ETag")
	if first.Code != http.StatusOK || tag == "" {
		t.Fatalf("got %d with tag %q", first.Code, tag)
	}
	if w := get(h, "b", "/apis", "Accept", aggregatedV2, "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with the tag: got %d and %d bytes, want 304 and none", w.Code, w.Body.Len())
	}
	clusters["a"] = installed()[1:]
	if w := get(h, "a", "/apis", "Accept", aggregatedV2, "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("after a change: got %d, want 200", w.Code)
	}
	if w := get(h, "a", "/apis", "Accept", strings.ReplaceAll(aggregatedV2, "json", "vnd.kubernetes.protobuf")); w.Code != http.StatusOK ||
		!strings.HasPrefix(w.Header().Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		t.Errorf("protobuf: got %d %s", w.Code, w.Header().Get("Content-Type"))
	}
}

func TestResourcesAreListedInThePreferredVersion(t *testing.T) {
	d := discoveryOf(map[logicalcluster.Name][]customresources.Installed{"a": installed()})
	list, err := d.Resources(logicalcluster.WithName(context.Background(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprintf("%s/%s/%s %s %t", r.Group, r.Version, r.Resource, r.Kind, r.Verbs.Has("create")))
	}
	want := []string{
		"/v2/pods Pod true", "/v1/secrets Secret true", "rbac.authorization.k8s.io/v1/roles Role true",
		"apps/v1/deployments Deployment true", "example.org/v1/widgets Widget true", "zoo.example.org/v1/ants Ant false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := d.Resources(context.Background()); err == nil {
		t.Error("without a cluster: want an error")
	}
	for resource, want := range map[schema.GroupVersionResource]string{
		{Group: "example.org", Version: "v9", Resource: "widgets"}: "v1", {Group: "example.org", Version: "v9", Resource: "gizmos"}: "v9",
	} {
		served, err := d.Served(logicalcluster.WithName(context.Background(), "a"), resource)
		if err != nil || served.Version != want || served.GroupResource() != resource.GroupResource() {
			t.Errorf("%v is served as %v, %v", resource, served, err)
		}
	}
}

func TestEveryResourceOfTheShardIsListedOnce(t *testing.T) {
	d := discoveryOf(map[logicalcluster.Name][]customresources.Installed{
		"a": {definition("example.org", "widgets", "Widget", "v1beta1")},
		"b": {definition("example.org", "widgets", "Gadget", "v1", "v1alpha1"), definition("example.com", "gizmos", "Gizmo", "v1")},
	})
	for range 10 {
		var got []string
		for _, r := range d.AllResources() {
			got = append(got, fmt.Sprintf("%s/%s/%s", r.Group, r.Version, r.Resource))
		}
		want := []string{"/v1/secrets", "rbac.authorization.k8s.io/v1/roles", "example.com/v1/gizmos", "example.org/v1/widgets"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func TestEachClusterHasItsOwnRESTMapper(t *testing.T) {
	d := discoveryOf(map[logicalcluster.Name][]customresources.Installed{"a": installed()})
	for cluster, want := range map[logicalcluster.Name]bool{"a": true, "b": false} {
		mapper, err := d.RESTMapper(logicalcluster.WithName(context.Background(), cluster))
		if err != nil {
			t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "example.org", Kind: "Widget"})
		if (err == nil) != want {
			t.Errorf("in %s: got %v", cluster, err)
		}
		if want && (mapping.Resource.Version != "v1" || mapping.Resource.Resource != "widgets") {
			t.Errorf("in %s: got %v", cluster, mapping.Resource)
		}
		if _, err := mapper.RESTMapping(schema.GroupKind{Kind: "Secret"}); err != nil {
			t.Errorf("in %s: %v", cluster, err)
		}
	}
}

func TestGroupsHaveAVersionInProtobuf(t *testing.T) {
	h := discoveryOf(map[logicalcluster.Name][]customresources.Installed{"a": installed()}).WithDiscovery(upstream)
	w := get(h, "a", "/apis", "Accept", "application/vnd.kubernetes.protobuf")
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	object, _, err := protobuf.NewSerializer(scheme, scheme).Decode(w.Body.Bytes(), nil, nil)
	if list, ok := object.(*metav1.APIGroupList); err != nil || !ok || len(list.Groups) == 0 {
		t.Errorf("decoding the groups: %v, %v", object, err)
	}
}
