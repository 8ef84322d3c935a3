package storage

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestStoredResourcesReadsOnlyItsClusterAndNamespace(t *testing.T) {
	s := configMaps(t)
	create(t, s, "ours", "default", "one", nil)
	create(t, s, "ours2", "other", "two", nil)
	b := *backend
	b.root = "/" + t.Name()
	for _, test := range []struct {
		cluster, resource, namespace string
		want                         bool
	}{
		{"ours", "configmaps", "", true}, {"ours", "configmaps", "default", true}, {"ours", "configmaps", "def", false},
		{"ours", "configmaps", "other", false}, {"our", "configmaps", "", false}, {"ours", "secrets", "", false}, {"ours2", "configmaps", "other", true},
	} {
		asked := schema.GroupResource{Resource: test.resource}
		got, err := b.StoredResources(in(test.cluster), []schema.GroupResource{{Group: "none", Resource: "others"}, asked}, test.namespace)
		if err != nil || slices.Contains(got, asked) != test.want || len(got) > 1 {
			t.Errorf("%+v: got %v, %v", test, got, err)
		}
	}
	many := make([]schema.GroupResource, 3*rangesPerRead)
	for i := range many {
		many[i] = schema.GroupResource{Resource: fmt.Sprintf("others%d", i)}
	}
	last := schema.GroupResource{Resource: "configmaps"}
	if got, err := b.StoredResources(in("ours"), append(many, last), ""); err != nil || !slices.Equal(got, []schema.GroupResource{last}) {
		t.Errorf("among many: got %v, %v", got, err)
	}
	if _, err := b.StoredResources(in("*"), []schema.GroupResource{{Resource: "configmaps"}}, ""); err == nil {
		t.Error("it answered for all clusters")
	}
}

func TestCountReadsOnlyItsCluster(t *testing.T) {
	s := configMaps(t)
	for n := range 5 {
		create(t, s, "ours", fmt.Sprintf("namespace-%d", n%2), fmt.Sprintf("name-%d", n), nil)
	}
	create(t, s, "ours2", "default", "theirs", nil)
	b := *backend
	b.root = "/" + t.Name()
	asked := []schema.GroupResource{{Group: "none", Resource: "others"}, {Resource: "configmaps"}}
	for cluster, want := range map[string]int64{"ours": 5, "ours2": 1, "our": 0} {
		if got, err := b.Count(in(cluster), asked); err != nil || got != want {
			t.Errorf("%s: got %d, %v", cluster, got, err)
		}
	}
	if _, err := b.Count(in("*"), asked); err == nil {
		t.Error("it counted all clusters")
	}
}

func TestStoredResourcesReadsBoundResourcesBelowTheirIdentity(t *testing.T) {
	b := *backend
	b.root = "/" + t.Name()
	if _, err := b.client.Client.Put(t.Context(), b.root+"/example.org/widgets/abc/ours/default/one", "{}"); err != nil {
		t.Fatal(err)
	}
	widgets := []schema.GroupResource{{Group: "example.org", Resource: "widgets"}}
	for identity, want := range map[string]int{"abc": 1, "another": 0, "": 0} {
		b.Identify(func(logicalcluster.Name, schema.GroupResource) string { return identity })
		if got, err := b.StoredResources(in("ours"), widgets, "default"); err != nil || len(got) != want {
			t.Errorf("below the identity %q: found %v, %v", identity, got, err)
		}
		if n, err := b.Count(in("ours"), widgets); err != nil || n != int64(want) {
			t.Errorf("below the identity %q: counted %d, %v", identity, n, err)
		}
	}
}

func TestVersionsReadsOnlyItsCluster(t *testing.T) {
	s := configMaps(t)
	made := create(t, s, "ours", "default", "one", nil)
	create(t, s, "ours2", "default", "two", nil)
	b := *backend
	b.root = "/" + t.Name()
	stored, now, err := b.Versions(in("ours"), schema.GroupResource{Resource: "configmaps"})
	if err != nil || len(stored) != 1 || fmt.Sprint(stored["one"]) != made.ResourceVersion || now <= stored["one"] {
		t.Errorf("got %v at %d, %v, want one at %s", stored, now, err, made.ResourceVersion)
	}
	if _, _, err := b.Versions(in("*"), schema.GroupResource{Resource: "configmaps"}); err == nil {
		t.Error("it read all clusters")
	}
}

// Deleting a logical cluster checks some 65 resources. Nearly all are built in or have a Go type, and need one range each.
func TestResourcesThatNoDefinitionCanHaveAreReadInOneRange(t *testing.T) {
	b := newSliceStorage(t).backend
	configMapsOf(t, b)
	for resource, want := range map[schema.GroupResource][]string{
		{Resource: "configmaps"}: {"/core/configmaps"},
		{Group: sliceKind.Group, Resource: "apiexportendpointslices"}: {"/apis.kcp.io/apiexportendpointslices/customresources"},
		{Group: "example.com", Resource: "widgets"}:                   {"/example.com/widgets", "/example.com/widgets/customresources"},
	} {
		if got := b.prefixesOf("ours", resource); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", resource, got, want)
		}
	}
	b.Identify(func(logicalcluster.Name, schema.GroupResource) string { return "identity" })
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	if got, want := b.prefixesOf("ours", widgets), []string{"/example.com/widgets", "/example.com/widgets/identity"}; !slices.Equal(got, want) {
		t.Errorf("a bound resource: got %q, want %q", got, want)
	}
}
