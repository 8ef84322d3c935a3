package feed

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestNeededAreTheClustersOfOtherShardsThatSomethingHereRefersTo(t *testing.T) {
	type names = []logicalcluster.Name
	parents := map[logicalcluster.Name]names{"provider": {"org"}, "org": {"root"}, "deep": {"middle"}, "middle": {"home"}, "a": {"b"}, "b": {"a"}}
	references := map[logicalcluster.Name]names{"provider": {"deep"}, "local": {"claimed"}}
	for name, test := range map[string]struct{ roots, here, want names }{
		"nothing":                              {nil, nil, nil},
		"a provider, its ancestors and theirs": {names{"provider"}, nil, names{"deep", "home", "middle", "org", "provider", "root"}},
		"not what this shard has":              {names{"provider"}, names{"root", "middle"}, names{"deep", "org", "provider"}},
		"what a provider here refers to":       {names{"local"}, names{"local"}, names{"claimed"}},
		"a loop":                               {names{"a"}, nil, names{"a", "b"}},
	} {
		got := needed(test.roots, func(c logicalcluster.Name) bool { return slices.Contains(test.here, c) },
			func(c logicalcluster.Name) []logicalcluster.Name { return parents[c] },
			func(c logicalcluster.Name) []logicalcluster.Name { return references[c] })
		if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// keeping is a shard that stores what it reads.
type keeping struct {
	*reading
	*Kept
	store *recorder
	// answers are those of shards about exports, and asked the shards in their order.
	answers func(shard string) (ExportAnswer, error)
	asked   []string
}

// recorder is a store that records writes, and fails at one of them.
type recorder struct {
	KeptStore
	mu     sync.Mutex
	writes []string
	failAt string
}

func (r *recorder) Put(ctx context.Context, name string, value []byte) error {
	return r.record("put "+name, func() error { return r.KeptStore.Put(ctx, name, value) })
}

func (r *recorder) Delete(ctx context.Context, name string) error {
	return r.record("delete "+name, func() error { return r.KeptStore.Delete(ctx, name) })
}

func (r *recorder) record(what string, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, what)
	if what == r.failAt {
		return errors.New("no connection")
	}
	return do()
}

func newKeeping(t *testing.T, cache *rest.Config, objects ...objecttest.Object) *keeping {
	t.Helper()
	k := &keeping{reading: newReading(t, cache), store: &recorder{KeptStore: newBackend(t, "").Kept()}}
	tree := pathindex.New(k.Set)
	all, err := exports.New(k.Set, tree, exports.System{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.Kept = NewKept(KeptInputs{
		Set: k.Set, Elsewhere: k.elsewhere, Reader: k.Reader, Exports: all, Tree: tree, Store: k.store, Clock: k.clock,
		Shards: func() []string { return []string{"root", "east", "west"} },
		Ask: func(_ context.Context, shard string, _ informers.Key) (ExportAnswer, error) {
			k.asked = append(k.asked, shard)
			return k.answers(shard)
		},
	})
	k.answers = func(string) (ExportAnswer, error) { return ExportAnswer{}, errors.New("no response") }
	for _, obj := range objects {
		k.Show(obj)
		switch obj.(type) { // informers of objecttest do not run
		case *apisv1alpha2.APIBinding:
			k.binds(informers.Key{}, exportOf(obj))
		case *corev1alpha1.LogicalCluster:
			count(k.Kept, k.types, "", typeClusterOf(obj))
		}
	}
	return k
}

// binds counts a binding of another export than before.
func (k *keeping) binds(before, now informers.Key) {
	count(k.Kept, k.providers, before.Cluster, now.Cluster)
	count(k.Kept, k.bound, before, now)
}

// settle decides and writes once, as the leader does.
func (k *keeping) settle(t *testing.T) error {
	t.Helper()
	k.decide()
	stored, err := k.readStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k.write(t.Context(), stored)
}

func (k *keeping) names(t *testing.T) []string {
	t.Helper()
	var names []string
	if err := k.store.All(t.Context(), func(name string, _ []byte) { names = append(names, name) }); err != nil {
		t.Fatal(err)
	}
	return names
}

func (k *keeping) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, k.names(t)); diff != "" {
		t.Fatalf("stored (-want +got): %s", diff)
	}
}

const (
	keptExport   = "apis.kcp.io/v1alpha2/apiexports/east/org/widgets"
	keptCluster  = "core.kcp.io/v1alpha1/logicalclusters/east/org/cluster"
	keptRoot     = "core.kcp.io/v1alpha1/logicalclusters/root/root/cluster"
	keptEdge     = "tenancy.kcp.io/v1alpha1/workspaces/root/root/org"
	keptWebhooks = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations/east/org/check"
)

func bindingToOrg() *apisv1alpha2.APIBinding {
	b := objecttest.In("consumer", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root:org", Name: "widgets"}
	b.Status.APIExportClusterName = "org"
	return b
}

func webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return objecttest.In("org", &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "check", UID: "hook"}})
}

var unused = &rest.Config{Host: "https://unused.test"}

// offerOrg offers the cluster org with an export.
func (k *keeping) offerOrg() {
	k.Offer("root", rootCluster())
	k.Offer("root", orgWorkspace())
	k.Offer("east", orgCluster())
	k.Offer("east", widgets("org", "first"))
	k.Offer("east", webhooks())
	k.Offer("east", objecttest.In("other", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "unused"}}))
	k.Offer("evil", widgets("org", "forged"))
}

func TestWhatABindingDependsOnIsStoredAndLoaded(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.expect(t, keptWebhooks, keptExport, keptCluster, keptRoot, keptEdge)
	if puts := k.store.writes; puts[len(puts)-1] != "put "+keptExport {
		t.Errorf("the export is not written last: %v", puts)
	}
	k.store.writes = nil
	if err := k.settle(t); err != nil || len(k.store.writes) > 0 {
		t.Errorf("equal objects are written again: %v, %v", k.store.writes, err)
	}

	again := newKeeping(t, unused, bindingToOrg()) // without cache server and providers
	if again.Loaded("org") || again.uid() != "" {
		t.Error("it is loaded before Load")
	}
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again.uid() != "first" || !again.Loaded("org") {
		t.Errorf("got the export %q, loaded %t", again.uid(), again.Loaded("org"))
	}
	if found, err := again.Set.ValidatingWebhookConfigurations.Get("org", "", "check"); err != nil || found.UID != "hook" {
		t.Errorf("got the webhooks %v, %v", found, err)
	}
	if place, ok := pathindex.New(again.Set).Anywhere("root:org"); !ok || place.Cluster != "org" {
		t.Errorf("root:org is at %v, %t", place, ok)
	}
	if err := again.settle(t); err != nil || len(again.store.writes) > 0 {
		t.Errorf("what was loaded is written again: %v, %v", again.store.writes, err)
	}
}

func TestWhatNothingDependsOnIsRemoved(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.binds(exportOf(bindingToOrg()), informers.Key{})
	k.store.writes = nil
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.expect(t, keptRoot, keptEdge) // root has the types of every installation
	if k.store.writes[0] != "delete "+keptExport {
		t.Errorf("the export is not removed first: %v", k.store.writes)
	}
}

func TestOnlyADeletionByTheHolderRemovesWhatIsNeeded(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.Withdraw("root", orgWorkspace()) // the holder of org is not known any more
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.expect(t, keptWebhooks, keptExport, keptCluster, keptRoot)
	k.Withdraw("evil", widgets("org", "forged"))
	k.Offer("root", orgWorkspace())
	k.Withdraw("east", webhooks())
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.expect(t, keptExport, keptCluster, keptRoot, keptEdge)
}

func TestAWriteThatFailsIsRepeated(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	k.store.failAt = "put " + keptEdge
	if err := k.settle(t); err == nil {
		t.Fatal("no error")
	}
	if slices.Contains(k.names(t), keptExport) {
		t.Error("the export is stored before what limits its consumers")
	}
	k.store.failAt = ""
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	k.expect(t, keptWebhooks, keptExport, keptCluster, keptRoot, keptEdge)
}

func TestTheClusterOfATypeIsKept(t *testing.T) {
	lc := objecttest.In("team", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	lc.Annotations[tenancyv1alpha1.TypeClusterAnnotation] = "org"
	k := newKeeping(t, unused, lc)
	k.offerOrg()
	of := objecttest.In("org", &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "type"}})
	k.Offer("east", of)
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(k.names(t), "tenancy.kcp.io/v1alpha1/workspacetypes/east/org/team") {
		t.Errorf("got %v", k.names(t))
	}
}

func TestAnInvalidStoredObjectIsLeftOut(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	for name, value := range map[string]string{
		keptExport: `{"metadata":{"name":"widgets","annotations":{"kcp.io/cluster":"other"}}}`, keptCluster: `{`, "v1/secrets/east/org/x": `{}`,
	} {
		if err := k.store.Put(t.Context(), name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k.uid() != "" || k.Loaded("org") {
		t.Error("an object is loaded under the name of another")
	}
}
