package feed

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// world is a shard named here, with a cache server.
type world struct {
	*objecttest.Objects
	t     *testing.T
	cache *fakeCache
	clock *clocktesting.FakeClock
	offer *Offer
	term  uint64
	// versions reads what is stored; by default that is what the informers have.
	versions func(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error)
	limits   Limits
	// dynamic reads published objects.
	dynamic dynamic.Interface
	// incarnation is that of the store of the shard.
	incarnation string
	// revision is the resource version of the last object that was made.
	revision int
}

func newWorld(t *testing.T) *world {
	w := &world{
		Objects: objecttest.New(t), t: t, cache: newFakeCache(t), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), term: 7,
		limits: Limits{100, 1 << 20}, incarnation: "first",
	}
	w.versions = w.shown
	w.offer = w.leader()
	return w
}

// leader returns the Offer of a process that has become the leader.
func (w *world) leader() *Offer {
	w.t.Helper()
	client, err := NewClient(w.cache.config(), "here")
	if err != nil {
		w.t.Fatal(err)
	}
	return NewOffer(Inputs{
		Set: w.Set, Shard: "here", Cache: client, Incarnation: w.incarnation, Limits: w.limits, Clock: w.clock,
		Term:    func(context.Context) (uint64, error) { return w.term, nil },
		Metrics: NewOfferMetrics("here"), Dynamic: w.dynamic, Objects: &runner.ObjectEvents{},
		Stored: map[string]storage.Objects{
			"apiexports": w.Stored(w.Set.APIExports.Informer), "apiexportendpointslices": w.Stored(w.Set.APIExportEndpointSlices.Informer),
			"clustercachedresources":              w.Stored(w.Set.ClusterCachedResources.Informer),
			"clustercachedresourceendpointslices": w.Stored(w.Set.ClusterCachedResourceEndpointSlices.Informer),
		},
		Versions: func(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error) {
			return w.versions(ctx, resource)
		},
	})
}

// shown returns the resource versions that the informers have.
func (w *world) shown(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	found := map[string]uint64{}
	for _, k := range w.offer.kinds {
		if k.resource.GroupResource() != resource {
			continue
		}
		for _, obj := range k.informer.Local(cluster) {
			m, _ := meta.Accessor(obj)
			found[m.GetName()] = version(m.GetResourceVersion())
		}
	}
	return found, uint64(w.revision), err
}

// has stores objects in a cluster: each is new, or a later state.
func (w *world) has(cluster string, objects ...objecttest.Object) {
	w.t.Helper()
	for _, obj := range objects {
		w.revision++
		obj.SetResourceVersion(strconv.Itoa(w.revision))
		if obj.GetUID() == "" {
			obj.SetUID(types.UID("uid-of-" + obj.GetName()))
		}
		w.Show(objecttest.In(cluster, obj))
		w.offer.changed(nil, obj)
	}
}

func (w *world) hasNot(cluster string, objects ...objecttest.Object) {
	w.t.Helper()
	for _, obj := range objects {
		w.Hide(objecttest.In(cluster, obj))
		w.offer.changed(obj, nil)
	}
}

// connect makes the shard read what the cache server has.
func (w *world) connect() {
	w.t.Helper()
	if err := w.offer.compare(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.offer.neighbours.complete.Store(true)
}

// settle reconciles until nothing is pending, and returns the writes.
func (w *world) settle() []string {
	w.t.Helper()
	if errs := w.try(); len(errs) > 0 {
		w.t.Fatalf("unexpected errors: %v", errs)
	}
	return w.cache.takeWrites()
}

// try reconciles until nothing is pending but what fails.
func (w *world) try() []error {
	w.t.Helper()
	failed := map[logicalcluster.Name]error{}
	for range 1000 {
		todo := slices.Sorted(maps.Keys(w.offer.pending.clusters()))
		todo = slices.DeleteFunc(todo, func(cluster logicalcluster.Name) bool { return failed[cluster] != nil })
		if len(todo) == 0 {
			return slices.Collect(maps.Values(failed))
		}
		for _, cluster := range todo {
			if err := w.offer.controller.Reconcile(w.t.Context(), informers.Key{Cluster: cluster}); err != nil {
				failed[cluster] = err
			}
		}
	}
	w.t.Fatal("reconciling does not end")
	return nil
}

func logicalCluster(parent, workspace string) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	if parent != "" {
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{
			APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Name: workspace, Cluster: parent,
		}
	}
	return lc
}

func workspace(name, cluster, shard string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{tenancyv1alpha1.ShardAnnotation: shard, "note": "private"}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: cluster, URL: "https://example.com"},
	}
}

func export(name string) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

const (
	exportsPath  = "/apis/apis.kcp.io/v1alpha2/apiexports"
	clusterPath  = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	edgesPath    = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	rolesPath    = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestAnExportIsOfferedWithTheWayFromRoot(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("org", "o", "here"), workspace("empty", "e", "here"))
	w.has("o", logicalCluster("root", "org"), workspace("team", "p", "here"))
	w.has("e", logicalCluster("root", "empty"))
	w.has("p", logicalCluster("o", "team"), export("widgets"))
	w.settle()
	equal(t, "offered", w.cache.paths("here"),
		"o"+clusterPath+"/cluster", "o"+edgesPath+"/team", "p"+exportsPath+"/widgets", "p"+clusterPath+"/cluster", "root"+clusterPath+"/cluster",
		"root"+edgesPath+"/org")
	w.hasNot("p", export("widgets"))
	w.settle()
	equal(t, "after the deletion of the export", w.cache.paths("here"))
	if len(w.offer.known) > 0 || len(w.offer.tree.carried) > 0 || len(w.offer.tree.children) > 0 || len(w.offer.tree.content) > 0 {
		t.Errorf("clusters that offer nothing are remembered: %v, %+v", w.offer.known, w.offer.tree)
	}
}

func TestCopiesSayWhereTheyComeFromAndHaveNothingPrivate(t *testing.T) {
	w := newWorld(t)
	w.connect()
	lc := logicalCluster("root", "team")
	lc.Annotations = map[string]string{
		corev1alpha1.PathAnnotation: "root:team", tenancyv1alpha1.TypeAnnotation: "root:universal", tenancyv1alpha1.OwnerAnnotation: "{}",
		tenancyv1alpha1.EpochAnnotation: "3", tenancyv1alpha1.AncestorsAnnotation: "root",
	}
	lc.Labels = map[string]string{"private": "label"}
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{Username: "alice"}
	lc.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	e := export("widgets")
	e.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", ReplicateAnnotation: "forged", "shown": "yes"}
	e.Labels = map[string]string{"shown": "yes"}
	ws := workspace("team", "p", "here")
	ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = "u"
	w.has("root", logicalCluster("", ""), ws)
	w.has("p", lc, e)
	w.settle()

	stamps := func(revision int, name string) map[string]string {
		return map[string]string{
			"cache.kcp.io/original-resource-version": strconv.Itoa(revision), "cache.kcp.io/original-resource-UID": "uid-of-" + name,
			"internal.kcp.io/incarnation": "first", "internal.kcp.io/leader-term": "7", "kcp.io/shard": "here",
		}
	}
	for path, want := range map[string]map[string]string{
		"p" + clusterPath + "/cluster": {
			"kcp.io/path": "root:team", "internal.tenancy.kcp.io/type": "root:universal", "internal.tenancy.kcp.io/epoch": "3",
			"internal.tenancy.kcp.io/ancestors": "root", "internal.kcp.io/replicate": "apis", "kcp.io/cluster": "p",
		},
		"p" + exportsPath + "/widgets": {"shown": "yes", "kcp.io/cluster": "p"},
		"root" + edgesPath + "/team": {
			"core.kcp.io/shard": "here", "internal.tenancy.kcp.io/cluster-uid": "u", "kcp.io/cluster": "root",
		},
	} {
		u := w.cache.get(path)
		if u == nil {
			t.Fatalf("%s is not offered", path)
		}
		name := u.GetName()
		maps.Copy(want, stamps(map[string]int{"team": 2, "cluster": 3, "widgets": 4}[name], name))
		if got := u.GetAnnotations(); !maps.Equal(got, want) {
			t.Errorf("%s: got annotations %v, want %v", path, got, want)
		}
	}
	spec, _, _ := unstructured.NestedMap(w.cache.get("p"+clusterPath+"/cluster").Object, "spec")
	if _, shown := spec["createdBy"]; shown || spec["owner"] == nil || w.cache.get("p"+clusterPath+"/cluster").GetLabels() != nil {
		t.Errorf("the LogicalCluster has the spec %v", spec)
	}
	spec, _, _ = unstructured.NestedMap(w.cache.get("root"+edgesPath+"/team").Object, "spec")
	if !maps.EqualFunc(spec, map[string]any{"cluster": "p"}, func(a, b any) bool { return a == b }) {
		t.Errorf("the Workspace has the spec %v", spec)
	}
}

func TestWhatDoesNotDifferIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), export("widgets"))
	w.settle()
	e := export("widgets")
	e.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	w.has("root", e)
	equal(t, "writes after a change of managed fields", w.settle())
	w.connect()
	equal(t, "writes after a comparison", w.settle())
	e = export("widgets")
	e.Status.IdentityHash = "h"
	w.has("root", e)
	equal(t, "writes after a change of the status", w.settle(), "PUT root"+exportsPath+"/widgets")
}

func TestDeletingObjectsStayUntilTheirFinalizersAreGone(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""))
	now := metav1.Now()
	deleting := export("widgets")
	deleting.DeletionTimestamp, deleting.Finalizers = &now, []string{"example.com/wait"}
	w.has("root", deleting)
	w.settle()
	equal(t, "while a finalizer is left", w.cache.paths("here"), "root"+exportsPath+"/widgets", "root"+clusterPath+"/cluster")
	released := export("widgets")
	released.DeletionTimestamp = &now
	w.has("root", released)
	w.settle()
	equal(t, "without finalizers", w.cache.paths("here"))
}

func TestSystemClustersAndClustersOfOtherShardsOfferNothing(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("system:admin", logicalCluster("", ""), export("widgets"), role("r", resourceRule("*", "*", "*")))
	w.has("stranger", export("widgets"))
	w.has("elsewhere", logicalCluster("", ""), &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
	w.settle()
	equal(t, "offered", w.cache.paths("here"))
	w.has("root", logicalCluster("", ""), &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "north"}})
	w.settle()
	equal(t, "with a shard in root", w.cache.paths("here"), "root"+clusterPath+"/cluster", "root/apis/core.kcp.io/v1alpha1/shards/north")
}

func TestTheLogicalClusterMayArriveAfterItsContent(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("a", export("widgets"))
	w.settle()
	lc := logicalCluster("", "")
	w.Show(objecttest.In("a", lc))
	w.offer.placeChanged(nil, lc)
	w.settle()
	equal(t, "offered", w.cache.paths("here"), "a"+exportsPath+"/widgets", "a"+clusterPath+"/cluster")
	w.Hide(lc)
	w.offer.placeChanged(lc, nil)
	w.settle()
	equal(t, "after the LogicalCluster is gone", w.cache.paths("here"))
}

// example returns a new object of a kind.
func (w *world) example(k *kind) objecttest.Object {
	w.t.Helper()
	for _, known := range informers.Kinds() {
		if known.Resource == k.resource {
			return known.Example.DeepCopyObject().(objecttest.Object)
		}
	}
	w.t.Fatalf("informers have no %s", k.name)
	return nil
}
