package informers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// shared is a set with stores for objects of other shards, and where clusters are.
type shared struct {
	*Set
	*Elsewhere
	holders map[logicalcluster.Name]string
	via     map[logicalcluster.Name][]logicalcluster.Name
}

func newShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{holders: map[logicalcluster.Name]string{}, via: map[logicalcluster.Name][]logicalcluster.Name{}}
	factory := NewFactory()
	var err error
	if s.Set, err = NewSet(factory); err != nil {
		t.Fatal(err)
	}
	if err := s.APIExports.AddIndexers(cache.Indexers{"identity": func(obj any) ([]string, error) {
		return []string{obj.(*apisv1alpha2.APIExport).Status.IdentityHash}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	s.Elsewhere, err = factory.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) {
		return s.holders[cluster], append([]logicalcluster.Name{cluster}, s.via[cluster]...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exportOf(cluster, name, uid string) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}},
		Status:     apisv1alpha2.APIExportStatus{IdentityHash: name},
	}
}

func (s *shared) offer(t *testing.T, i *Informer, shard string, obj runtime.Object) {
	t.Helper()
	if err := s.Elsewhere.Set(i, shard, obj); err != nil {
		t.Fatal(err)
	}
}

// events collects the events of a handler as "<old UID> <new UID>".
func events() (Handler, func() []string) {
	var heard []string
	uid := func(obj runtime.Object) string {
		if obj == nil {
			return "-"
		}
		return string(obj.(*apisv1alpha2.APIExport).UID)
	}
	return func(old, obj runtime.Object) { heard = append(heard, uid(old)+" "+uid(obj)) },
		func() []string { since := heard; heard = nil; return since }
}

func expectEvents(t *testing.T, heard func() []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, heard()); diff != "" {
		t.Fatalf("events (-want +got): %s", diff)
	}
}

func uids(exports []*apisv1alpha2.APIExport, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range exports {
		all = append(all, string(e.UID))
	}
	slices.Sort(all)
	return all
}

func TestAListerHasTheObjectsOfTheShardThatHoldsTheirCluster(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	if err := s.APIExports.Indexer().Add(exportOf("here", "cars", "local")); err != nil {
		t.Fatal(err)
	}
	s.offer(t, s.APIExports.Informer, "east", exportOf("elsewhere", "cars", "remote"))
	s.offer(t, s.APIExports.Informer, "west", exportOf("elsewhere", "cars", "forged"))
	s.offer(t, s.APIExports.Informer, "west", exportOf("here", "cars", "forged here"))
	s.offer(t, s.APIExports.Informer, "west", exportOf("nowhere", "cars", "unknown"))
	for cluster, want := range map[logicalcluster.Name]string{"elsewhere": "remote", "here": "local"} {
		found, err := s.APIExports.Get(cluster, "", "cars")
		if err != nil || string(found.UID) != want {
			t.Errorf("got %v, %v in %s, want %s", found, err, cluster, want)
		}
		if same, ok := s.APIExports.Find(cluster, "", "cars"); !ok || same != found {
			t.Errorf("Find returns %v, %t in %s, want what Get returns", same, ok, cluster)
		}
		if diff := cmp.Diff([]string{want}, uids(s.APIExports.List(cluster))); diff != "" {
			t.Errorf("list of %s: %s", cluster, diff)
		}
	}
	if diff := cmp.Diff([]string{"local", "remote"}, uids(s.APIExports.ByIndex("identity", "cars"))); diff != "" {
		t.Errorf("by index: %s", diff)
	}
	if _, err := s.APIExports.Get("nowhere", "", "cars"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for an object of a cluster whose holder is not known, want NotFound", err)
	}
	if found, ok := s.APIExports.Find("nowhere", "", "cars"); ok || found != nil {
		t.Errorf("Find returns %v for an object of a cluster whose holder is not known", found)
	}
	if _, err := s.APIExports.GetLocal("elsewhere", "", "cars"); !apierrors.IsNotFound(err) {
		t.Errorf("GetLocal returns %v for an object of another shard, want NotFound", err)
	}
}

func TestAListerPrefersTheObjectOfThisShard(t *testing.T) {
	s := newShared(t)
	s.holders["moving"] = "east"
	if err := s.APIExports.Indexer().Add(exportOf("moving", "cars", "local")); err != nil {
		t.Fatal(err)
	}
	s.offer(t, s.APIExports.Informer, "east", exportOf("moving", "cars", "remote"))
	if found, err := s.APIExports.Get("moving", "", "cars"); err != nil || found.UID != "local" {
		t.Errorf("got %v, %v", found, err)
	}
	if diff := cmp.Diff([]string{"local"}, uids(s.APIExports.List("moving"))); diff != "" {
		t.Error(diff)
	}
}

func TestAListOfThisShardsObjectsKeepsThoseOfOthers(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	s.offer(t, s.APIExports.Informer, "east", exportOf("elsewhere", "cars", "remote"))
	store := (*deliveringStore)(s.APIExports.Informer)
	if err := store.Replace([]any{exportOf("here", "cars", "local")}, "5"); err != nil {
		t.Fatal(err)
	}
	if err := store.Replace(nil, "6"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.APIExports.Get("elsewhere", "", "cars"); err != nil {
		t.Error(err)
	}
	if _, err := s.APIExports.Get("here", "", "cars"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestOnlyHandlersForAllReceiveObjectsOfOtherShards(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	exports := s.APIExports.Informer
	local, heardLocal := events()
	all, heardAll := events()
	exports.AddHandler(local)
	exports.AddHandlerForAll(all)
	s.offer(t, exports, "east", exportOf("elsewhere", "cars", "1"))
	s.offer(t, exports, "west", exportOf("elsewhere", "cars", "forged"))
	expectEvents(t, heardAll, "- 1")
	s.offer(t, exports, "east", exportOf("elsewhere", "cars", "1"))
	expectEvents(t, heardAll, "1 1")
	s.offer(t, exports, "east", exportOf("elsewhere", "cars", "2"))
	expectEvents(t, heardAll, "1 -", "- 2")
	late, heardLate := events()
	exports.AddHandlerForAll(late)
	expectEvents(t, heardLate, "- 2")
	for _, shard := range []string{"west", "east", "east"} {
		if err := s.Elsewhere.Delete(exports, shard, Key{Cluster: "elsewhere", Name: "cars"}); err != nil {
			t.Fatal(err)
		}
	}
	expectEvents(t, heardAll, "2 -")
	expectEvents(t, heardLocal)
	if err := (*deliveringStore)(exports).Add(exportOf("here", "cars", "3")); err != nil {
		t.Fatal(err)
	}
	expectEvents(t, heardAll, "- 3")
	expectEvents(t, heardLocal, "- 3")
}

func TestABranchForAllEndsForOtherShardsToo(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	branch, end := s.APIExports.Branch()
	all, heard := events()
	branch.AddHandlerForAll(all)
	s.offer(t, s.APIExports.Informer, "east", exportOf("elsewhere", "cars", "1"))
	expectEvents(t, heard, "- 1")
	if _, err := (Lister[*apisv1alpha2.APIExport]{branch}).Get("elsewhere", "", "cars"); err != nil {
		t.Error(err)
	}
	end()
	s.offer(t, s.APIExports.Informer, "east", exportOf("elsewhere", "cars", "2"))
	expectEvents(t, heard)
}

func clusterEdge(name string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{logicalcluster.AnnotationKey: name}},
	}
}

func workspaceEdge(parent, cluster string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{logicalcluster.AnnotationKey: parent}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: cluster},
	}
}

func TestObjectsAppearAndDisappearWithTheHolderOfTheirCluster(t *testing.T) {
	s := newShared(t)
	exports := s.APIExports.Informer
	all, heard := events()
	exports.AddHandlerForAll(all)
	s.offer(t, exports, "east", exportOf("moving", "cars", "1"))
	s.offer(t, exports, "west", exportOf("moving", "cars", "2"))
	expectEvents(t, heard)
	change := func(shard string, f func()) {
		t.Helper()
		s.holders["moving"] = shard
		f()
	}
	change("east", func() { s.offer(t, s.LogicalClusters.Informer, "east", clusterEdge("moving")) })
	expectEvents(t, heard, "- 1")
	change("west", func() { s.offer(t, s.Workspaces.Informer, "north", workspaceEdge("parent", "moving")) })
	expectEvents(t, heard, "1 -", "- 2")
	change("", func() {
		if err := s.Elsewhere.Delete(s.Workspaces.Informer, "north", Key{Cluster: "parent", Name: "team"}); err != nil {
			t.Fatal(err)
		}
	})
	expectEvents(t, heard, "2 -")
	store := (*deliveringStore)(s.Workspaces.Informer)
	change("east", func() { // the parent is in this shard
		if err := store.Add(workspaceEdge("parent", "moving")); err != nil {
			t.Fatal(err)
		}
	})
	expectEvents(t, heard, "- 1")
	change("west", func() {
		if err := store.Delete(workspaceEdge("parent", "moving")); err != nil {
			t.Fatal(err)
		}
	})
	expectEvents(t, heard, "1 -", "- 2")
}

func TestAnEdgeMovesTheClustersBelowIt(t *testing.T) {
	s := newShared(t)
	all, heard := events()
	s.APIExports.AddHandlerForAll(all)
	s.via["below"] = []logicalcluster.Name{"middle", "top"}
	s.offer(t, s.APIExports.Informer, "east", exportOf("below", "cars", "1"))
	expectEvents(t, heard)
	s.holders["below"] = "east"
	s.offer(t, s.Workspaces.Informer, "east", workspaceEdge("root", "other"))
	expectEvents(t, heard)
	s.offer(t, s.Workspaces.Informer, "east", workspaceEdge("root", "top"))
	expectEvents(t, heard, "- 1")
	s.holders["below"], s.via["below"] = "", []logicalcluster.Name{"middle"}
	if err := (*deliveringStore)(s.LogicalClusters.Informer).Add(clusterEdge("middle")); err != nil {
		t.Fatal(err)
	}
	expectEvents(t, heard, "1 -")
	s.holders["below"] = "east"
	s.offer(t, s.Workspaces.Informer, "east", workspaceEdge("root", "top")) // nothing depends on it any more
	expectEvents(t, heard)
}

func TestListersOfEdgesHaveOnlyThoseOfThisShard(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	s.offer(t, s.LogicalClusters.Informer, "east", clusterEdge("elsewhere"))
	if _, err := s.LogicalClusters.Get("elsewhere", "", "cluster"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound: this shard does not hold the cluster", err)
	}
	if _, err := s.LogicalClusters.GetAnywhere("elsewhere", "", "cluster"); err != nil {
		t.Error(err)
	}
	s.offer(t, s.LogicalClusters.Informer, "west", clusterEdge("elsewhere"))
	var shards []string
	for _, offer := range s.LogicalClusters.Offers("elsewhere") {
		shards = append(shards, offer.Shard)
	}
	if diff := cmp.Diff([]string{"east", "west"}, shards); diff != "" {
		t.Error(diff)
	}
}

func TestElsewhereForgetsClustersWithoutObjects(t *testing.T) {
	s := newShared(t)
	s.via["a"] = []logicalcluster.Name{"parent"}
	s.via["b"] = []logicalcluster.Name{"parent"}
	for _, cluster := range []string{"a", "b"} {
		s.offer(t, s.APIExports.Informer, "east", exportOf(cluster, "cars", "1"))
	}
	for _, cluster := range []logicalcluster.Name{"a", "b"} {
		if err := s.Elsewhere.Delete(s.APIExports.Informer, "east", Key{Cluster: cluster, Name: "cars"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.places) != 0 || len(s.dependents) != 0 {
		t.Errorf("left %v, %v", s.places, s.dependents)
	}
}

func TestASetThatIsNotSharedHasNoSecondStores(t *testing.T) {
	set, err := NewSet(NewFactory())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []*Informer{set.APIExports.Informer, set.LogicalClusters.Informer, set.ClusterRoles.Informer} {
		if i.remote != nil || i.merged != nil || i.edges != nil {
			t.Errorf("%s has a store of other shards", i.Resource())
		}
	}
	if err := set.APIExports.Indexer().Add(exportOf("here", "cars", "1")); err != nil {
		t.Fatal(err)
	}
	one := testing.AllocsPerRun(100, func() { _, _ = set.APIExports.Get("here", "", "cars") })
	s := newShared(t)
	if err := s.APIExports.Indexer().Add(exportOf("here", "cars", "1")); err != nil {
		t.Fatal(err)
	}
	if two := testing.AllocsPerRun(100, func() { _, _ = s.APIExports.Get("here", "", "cars") }); one != two {
		t.Errorf("a look-up of an object of this shard allocates %v times, and %v with other shards", one, two)
	}
}

// TestNoKindWithSecretsIsGlobal lists every kind that leaves a shard.
func TestNoKindWithSecretsIsGlobal(t *testing.T) {
	var global []string
	for _, kind := range Kinds() {
		if kind.Global || kind.Edge {
			global = append(global, kind.Resource.Resource)
		}
	}
	slices.Sort(global)
	if diff := cmp.Diff([]string{
		"apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas", "clustercachedresourceendpointslices",
		"clustercachedresources", "clusterrolebindings", "clusterroles", "logicalclustermigrations", "logicalclusters",
		"mutatingadmissionpolicies",
		"mutatingadmissionpolicybindings", "mutatingwebhookconfigurations", "shards", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "workspaceauthenticationconfigurations", "workspaces",
		"workspacetypes",
	}, global); diff != "" {
		t.Errorf("kinds that leave a shard (-want +got): %s", diff)
	}
}
