package customresources

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheHashDependsOnlyOnTheContent(t *testing.T) {
	hash := func(crd *apiextensionsv1.CustomResourceDefinition) string {
		h, err := hashOf(crd, sharing{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash(widgets())
	other := widgets()
	other.UID, other.ResourceVersion, other.Labels = "u", "7", map[string]string{"a": "b"}
	other.Status.StoredVersions = []string{"v1"}
	other.Status.Conditions[0].LastTransitionTime = metav1.Now()
	if hash(other) != base || hash(terminating(widgets())) != base {
		t.Error("metadata, conditions or stored versions changed the hash")
	}
	seen := map[string]string{base: "the original"}
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"group":  func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Group = "example.com" },
		"kind":   func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Names.Kind = "Other" },
		"scope":  func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped },
		"schema": withFields("size", "colour"),
	} {
		h := hash(widgets(change))
		if before, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, before)
		}
		seen[h] = name
	}
	renamed := widgets()
	renamed.Status.AcceptedNames.ShortNames = []string{"w"}
	if hash(renamed) == base {
		t.Error("the accepted names did not change the hash")
	}
}

func TestEqualDefinitionsAreSharedAndRemovedWithTheLastCluster(t *testing.T) {
	r := newRegistry(func(*Definition) (http.Handler, error) { return nil, nil })
	var moved, forgotten []string
	changes := 0
	r.moved = func(c logicalcluster.Name, key string) { moved = append(moved, string(c)+"|"+key) }
	r.forgotten = func(key string) { forgotten = append(forgotten, key) }
	r.onChange(func() { changes++ })
	in := func(cluster string, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
		crd.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster}
		r.share(crd)
		return crd
	}
	// As in the first list of an informer: everything is shared before anything is set.
	const clusters = 100
	var all []*apiextensionsv1.CustomResourceDefinition
	for i := range clusters {
		all = append(all, in(fmt.Sprint("c", i), widgets()))
	}
	for _, crd := range all {
		r.set(crd)
		if content(crd) != content(all[0]) {
			t.Fatalf("%s has a spec of its own", logicalcluster.Of(crd))
		}
	}
	if d := r.distinct(); len(d) != 1 || len(r.installed) != clusters || changes != clusters {
		t.Fatalf("%d definitions, %d clusters, %d changes", len(d), len(r.installed), changes)
	}
	first := r.distinct()[0]
	r.set(all[0]) // no change
	if changes != clusters || len(moved) != 0 {
		t.Errorf("an event without news counted as a change: %d, moved %v", changes, moved)
	}
	changed := in("c0", widgets(withFields("colour")))
	r.set(changed)
	if len(r.distinct()) != 2 || fmt.Sprint(moved) != "[c0|widgets.example.org]" {
		t.Errorf("after a change: %d definitions, moved %v", len(r.distinct()), moved)
	}
	r.remove(changed)
	for _, crd := range all[1:] {
		if first.informer.isRemoved() {
			t.Fatal("closed while in use")
		}
		r.remove(crd)
	}
	if !first.informer.isRemoved() || fmt.Sprint(forgotten) != "[widgets.example.org]" {
		t.Errorf("closed: %t, forgotten: %v", first.informer.isRemoved(), forgotten)
	}
	if n := len(r.byHash) + len(r.byContent) + len(r.byKey) + len(r.installed); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	again := in("c0", widgets())
	r.set(again)
	if i, ok := r.get("c0", "widgets.example.org"); !ok || i.informer.isRemoved() {
		t.Error("a definition did not come back after it was gone")
	}
}

// A tenant who creates and deletes a definition decides when it is closed, even while the first request compiles it.
func TestABoundSchemaIsKeptInTheMemoryOfItsDefinition(t *testing.T) {
	r := newRegistry(func(*Definition) (http.Handler, error) { return nil, nil })
	schema := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "uid"}, Spec: apisv1alpha1.APIResourceSchemaSpec{
		Group: "example.org", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apisv1alpha1.APIResourceVersion{{
			Name: "v1", Served: true, Storage: true, Schema: runtime.RawExtension{Raw: []byte(`{"type":"object"}`)},
		}},
	}}
	const key = "widgets.example.org"
	offered, _, err := r.definitionOf(schema)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.definition(offered, sharing{Identity: "identity"})
	if err != nil {
		t.Fatal(err)
	}
	r.offer(ViewOf("provider", "widgets"), map[string]*Definition{key: d})
	r.keep(schema)
	for _, cluster := range []logicalcluster.Name{"a", "b"} {
		r.bind(use{cluster, key}, binding{name: "mine", schema: "uid", identity: "identity"})
		if i, _ := r.get(cluster, key); i.Definition != d {
			t.Errorf("cluster %s has a definition of its own", cluster)
		}
	}
	if content(r.bound.schemas["uid"].crd) != content(d.stored) {
		t.Error("the kept schema has memory of its own")
	}
	r.offer(ViewOf("provider", "widgets"), nil)
	for _, cluster := range []logicalcluster.Name{"a", "b"} {
		r.unbind(use{cluster, key}, binding{name: "mine", schema: "uid", identity: "identity"})
	}
	if n := len(r.byHash) + len(r.byContent) + len(r.byKey) + len(r.installed); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestADefinitionClosedDuringCompilationIsStoppedAfterwards(t *testing.T) {
	for name, failure := range map[string]error{"compiled": nil, "not compiled": errors.New("no converter")} {
		told, complete := 0, false
		d := newDefinition("hash", sharing{}, widgets(), func(d *Definition) (http.Handler, error) {
			_, err := d.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
				if told++; !complete {
					t.Errorf("%s: the handler is called before it is complete", name)
				}
			}})
			d.close()
			complete = failure == nil
			return http.NotFoundHandler(), errors.Join(err, failure)
		})
		_, err := d.compiled()
		if d.close(); (err != nil) != (failure != nil) || !d.informer.isRemoved() {
			t.Errorf("%s: got %v, removed: %t", name, err, d.informer.isRemoved())
		}
		if want := map[bool]int{true: 1}[complete]; told != want {
			t.Errorf("%s: the handler was called %d times, want %d", name, told, want)
		}
	}
}
