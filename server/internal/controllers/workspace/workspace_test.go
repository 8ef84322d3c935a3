package workspace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	parent = "root"
	inside = "0123456789abcdef" // as scheduling.NewName returns
	uid    = types.UID("of the workspace")
	url    = "https://kcp.test/clusters/root:team"
)

var key = informers.Key{Cluster: parent, Name: "team"}

// workspace returns a workspace that was created an hour ago, as change leaves it.
func workspace(change func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	ws := objecttest.In(parent, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", UID: uid, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
	}})
	change(ws)
	return ws
}

// placed is the change to a workspace that has its logical cluster.
func placed(ws *tenancyv1alpha1.Workspace) {
	ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = inside
	ws.Finalizers = []string{tenancyv1alpha1.LogicalClusterFinalizer}
	ws.Spec.Cluster, ws.Spec.URL = inside, url
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
}

// terminating changes a workspace to one with a logical cluster that is being deleted.
func terminating(ws *tenancyv1alpha1.Workspace) {
	placed(ws)
	now := metav1.Now()
	ws.DeletionTimestamp = &now
}

// cluster returns the logical cluster of the workspace, as change leaves it.
func cluster(change func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(inside, &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Finalizers: []string{corev1alpha1.DeletionFinalizer}},
		Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Name: "team", Cluster: parent, UID: uid}},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	})
	lc.Annotations[corev1alpha1.PathAnnotation] = "root:team"
	if change != nil {
		change(lc)
	}
	return lc
}

func shard(name string) *corev1alpha1.Shard {
	return objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// newController returns the controller of shard "here".
func newController(o *objecttest.Objects) *runner.Controller {
	tree := pathindex.New(o.Set)
	clusters, workspaces := o.Stored(o.Set.LogicalClusters.Informer), o.Stored(o.Set.Workspaces.Informer)
	return New(Inputs{Set: o.Set, Clusters: clusters, Workspaces: workspaces, Clock: clock.RealClock{}, Scheduler: &scheduling.Scheduler{
		Clusters: clusters, LogicalClusters: o.Set.LogicalClusters, Shards: o.Set.Shards, Tree: tree, Types: workspacetypes.New(o.Set, tree),
		ShardName: "here", ExternalURL: "https://kcp.test",
	}})
}

// outcome is what is stored after the controller has looked once.
type outcome struct {
	ws *tenancyv1alpha1.Workspace     // nil if it is gone
	lc *corev1alpha1.LogicalCluster   // nil if there is none
	of []*corev1alpha1.LogicalCluster // all that are seen
	n  map[string]int                 // writes by resource
}

func condition(ws *tenancyv1alpha1.Workspace, kind string) corev1alpha1.Condition {
	i := slices.IndexFunc(ws.Status.Conditions, func(c corev1alpha1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return corev1alpha1.Condition{}
	}
	return ws.Status.Conditions[i]
}

func TestTheNextStepOfAWorkspace(t *testing.T) {
	deleted := func(lc *corev1alpha1.LogicalCluster) { now := metav1.Now(); lc.DeletionTimestamp = &now }
	for name, tc := range map[string]struct {
		objects []objecttest.Object
		want    func(outcome) bool
	}{
		"a settled one: nothing": {
			[]objecttest.Object{workspace(placed), cluster(nil)},
			func(o outcome) bool { return o.n["workspaces"]+o.n["logicalclusters"] == 0 },
		},
		"a mounted one: nothing": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Mount = &tenancyv1alpha1.Mount{} }), shard("here")},
			func(o outcome) bool { return o.n["workspaces"]+o.n["logicalclusters"] == 0 },
		},
		"a new one: the name of its logical cluster, before that exists": {
			[]objecttest.Object{workspace(func(*tenancyv1alpha1.Workspace) {}), shard("here")},
			func(o outcome) bool {
				return scheduling.IsNewName(logicalcluster.Name(o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation])) && len(o.of) == 0 &&
					slices.Contains(o.ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
			},
		},
		"one with a name that others chose: another name": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = "root" }), shard("here")},
			func(o outcome) bool {
				return scheduling.IsNewName(logicalcluster.Name(o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation])) && o.ws.Spec.Cluster == ""
			},
		},
		"one with a name: its logical cluster": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = inside }), shard("here")},
			func(o outcome) bool {
				return o.lc != nil && o.lc.Spec.Owner.UID == uid && o.ws.Spec.Cluster == inside && o.ws.Spec.URL == url &&
					o.ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && o.ws.Generation == 1 &&
					condition(o.ws, tenancyv1alpha1.WorkspaceScheduled).Status == metav1.ConditionTrue
			},
		},
		"one whose logical cluster was stored before a crash: that one": {
			[]objecttest.Object{
				workspace(func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = inside }), shard("here"), cluster(nil),
			},
			func(o outcome) bool { return o.ws.Spec.Cluster == inside && o.n["logicalclusters"] == 0 },
		},
		"one whose name was taken by another workspace: no name": {
			[]objecttest.Object{
				workspace(func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = inside }), shard("here"),
				cluster(func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.UID = "other" }),
			},
			func(o outcome) bool {
				return o.ws.Spec.Cluster == "" && o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation] == "" && o.lc.Spec.Owner.UID == "other"
			},
		},
		"one for which there is no shard: a condition": {
			[]objecttest.Object{workspace(func(*tenancyv1alpha1.Workspace) {})},
			func(o outcome) bool {
				c := condition(o.ws, tenancyv1alpha1.WorkspaceScheduled)
				return c.Status == metav1.ConditionFalse && c.Reason == tenancyv1alpha1.ReasonUnschedulable && o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation] == ""
			},
		},
		"one for which no shard responds: a condition with the reason": {
			[]objecttest.Object{workspace(func(*tenancyv1alpha1.Workspace) {}), shard("there")},
			func(o outcome) bool {
				return strings.Contains(condition(o.ws, tenancyv1alpha1.WorkspaceScheduled).Message, "1 not responding") && o.ws.Spec.Cluster == ""
			},
		},
		"one of a type that does not exist: a condition": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) {
				ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = inside
				ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Path: "root", Name: "none"}
			}), shard("here"), objecttest.In("root", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
				Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{corev1alpha1.PathAnnotation: "root"},
			}})},
			func(o outcome) bool {
				return condition(o.ws, tenancyv1alpha1.WorkspaceScheduled).Reason == tenancyv1alpha1.ReasonUnschedulable && o.lc == nil
			},
		},
		"one whose logical cluster still has initializers: these": {
			[]objecttest.Object{workspace(placed), cluster(func(lc *corev1alpha1.LogicalCluster) {
				lc.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
				lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:x"}
			})},
			func(o outcome) bool {
				return o.ws.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing && slices.Equal(o.ws.Status.Initializers, []corev1alpha1.LogicalClusterInitializer{"root:x"})
			},
		},
		"one whose path has changed: another URL": {
			[]objecttest.Object{workspace(placed), cluster(func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[corev1alpha1.PathAnnotation] = "root:moved" })},
			func(o outcome) bool { return o.ws.Spec.URL == "https://kcp.test/clusters/root:moved" },
		},
		"a young one whose logical cluster is not seen yet: nothing": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) { placed(ws); ws.CreationTimestamp = metav1.Now() })},
			func(o outcome) bool { return o.n["workspaces"] == 0 },
		},
		"an old one that has lost its logical cluster: it is unavailable": {
			[]objecttest.Object{workspace(placed)},
			func(o outcome) bool {
				return o.ws.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable &&
					condition(o.ws, tenancyv1alpha1.WorkspaceInitialized).Reason == tenancyv1alpha1.ReasonWorkspaceDisappeared
			},
		},
		"one that is deleted: its logical cluster is deleted first": {
			[]objecttest.Object{workspace(terminating), cluster(nil)},
			func(o outcome) bool { return o.ws != nil && o.lc.DeletionTimestamp != nil },
		},
		"one that is deleted and held by others: its logical cluster stays": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) {
				terminating(ws)
				ws.Finalizers = append(ws.Finalizers, "example.org/mine")
			}), cluster(nil)},
			func(o outcome) bool {
				return o.lc.DeletionTimestamp == nil && o.ws.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting && len(o.ws.Finalizers) == 2
			},
		},
		"one that is deleted, whose logical cluster belongs to another: it goes alone": {
			[]objecttest.Object{workspace(terminating), cluster(func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.UID = "other" })},
			func(o outcome) bool { return o.ws == nil && o.lc.DeletionTimestamp == nil },
		},
		"one that is deleted, whose logical cluster goes in a moment: nothing": {
			[]objecttest.Object{workspace(terminating), cluster(deleted)},
			func(o outcome) bool { return o.n["workspaces"]+o.n["logicalclusters"] == 0 },
		},
		"one that is deleted, whose logical cluster waits for terminators: these": {
			[]objecttest.Object{workspace(terminating), cluster(func(lc *corev1alpha1.LogicalCluster) {
				deleted(lc)
				lc.Status.Phase = corev1alpha1.LogicalClusterPhaseTerminating
				lc.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:x"}
			})},
			func(o outcome) bool {
				return o.ws.Status.Phase == corev1alpha1.LogicalClusterPhaseTerminating && len(o.ws.Status.Terminators) == 1 &&
					slices.Contains(o.ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
			},
		},
		"one that is deleted, whose logical cluster is gone: it goes": {
			[]objecttest.Object{workspace(terminating)},
			func(o outcome) bool { return o.ws == nil },
		},
		"one that is deleted, whose logical cluster is gone, and that others hold: our finalizer": {
			[]objecttest.Object{workspace(func(ws *tenancyv1alpha1.Workspace) {
				terminating(ws)
				ws.Finalizers = append(ws.Finalizers, "example.org/mine")
			})},
			func(o outcome) bool { return slices.Equal(o.ws.Finalizers, []string{"example.org/mine"}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.New(t, tc.objects...)
			if err := newController(o).Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if got := look(t, o); !tc.want(got) {
				t.Errorf("workspace: %+v\nlogical cluster: %+v\nwrites: %v", got.ws, got.lc, got.n)
			}
		})
	}
}

func look(t *testing.T, o *objecttest.Objects) outcome {
	t.Helper()
	clusters, workspaces := o.Stored(o.Set.LogicalClusters.Informer), o.Stored(o.Set.Workspaces.Informer)
	out := outcome{ws: &tenancyv1alpha1.Workspace{}, lc: &corev1alpha1.LogicalCluster{}, n: map[string]int{
		"workspaces": workspaces.Writes, "logicalclusters": clusters.Writes,
	}}
	if err := workspaces.Get(logicalcluster.WithName(t.Context(), parent), "team", out.ws); apierrors.IsNotFound(err) {
		out.ws = nil
	} else if err != nil {
		t.Fatal(err)
	}
	if err := clusters.Get(logicalcluster.WithName(t.Context(), inside), corev1alpha1.LogicalClusterName, out.lc); apierrors.IsNotFound(err) {
		out.lc = nil
	} else if err != nil {
		t.Fatal(err)
	}
	for _, obj := range o.Set.LogicalClusters.Indexer().List() {
		out.of = append(out.of, obj.(*corev1alpha1.LogicalCluster))
	}
	return out
}

func TestDeletionOfAWorkspaceFindsALogicalClusterThatTheInformerLacks(t *testing.T) {
	o := objecttest.New(t, workspace(terminating))
	o.Store(cluster(nil))
	if err := newController(o).Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if got := look(t, o); got.ws == nil || got.lc.DeletionTimestamp == nil {
		t.Errorf("the workspace is %v, the logical cluster %v", got.ws, got.lc)
	}
}

func TestAWorkspaceIsNotDeletedWhileStorageFails(t *testing.T) {
	o := objecttest.New(t, workspace(terminating))
	o.Stored(o.Set.LogicalClusters.Informer).Fail(inside, corev1alpha1.LogicalClusterName, errors.New("etcd is away"))
	if err := newController(o).Reconcile(t.Context(), key); err == nil {
		t.Error("no error")
	}
	workspaces := o.Stored(o.Set.Workspaces.Informer)
	if err := workspaces.Get(logicalcluster.WithName(t.Context(), parent), "team", &tenancyv1alpha1.Workspace{}); err != nil {
		t.Errorf("the workspace is gone: %v", err)
	}
}

// What the controller has read may be older than what is stored.
func TestAWorkspaceThatHasChangedIsNotOverwritten(t *testing.T) {
	o := objecttest.New(t, workspace(terminating))
	o.Store(workspace(func(ws *tenancyv1alpha1.Workspace) {
		terminating(ws)
		ws.Finalizers = append(ws.Finalizers, "example.org/mine")
	}))
	if err := newController(o).Reconcile(t.Context(), key); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := look(t, o); got.ws == nil {
		t.Error("a workspace with another finalizer is deleted")
	}
}

func TestTheDeletionOfAWorkspaceLeavesTheNextWorkspaceOfItsName(t *testing.T) {
	o := objecttest.New(t, workspace(terminating))
	o.Store(workspace(func(ws *tenancyv1alpha1.Workspace) {
		terminating(ws)
		ws.UID = "next"
	}))
	if err := newController(o).Reconcile(t.Context(), key); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := look(t, o); got.ws == nil {
		t.Error("another workspace is deleted")
	}
}

// A home has the same logical cluster when it is created again, and the informer may still show the former ones.
func TestTheDeletionOfAWorkspaceLeavesTheNextLogicalClusterOfItsName(t *testing.T) {
	former := cluster(func(lc *corev1alpha1.LogicalCluster) { lc.UID = "former" })
	o := objecttest.New(t, workspace(terminating), former)
	o.Store(cluster(func(lc *corev1alpha1.LogicalCluster) { lc.UID = "next" }))
	if err := newController(o).Reconcile(t.Context(), key); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := look(t, o); got.lc.DeletionTimestamp != nil {
		t.Error("another logical cluster is deleted")
	}
}

// Most logical clusters arrive in the informer a moment after their workspaces, and some never do.
func TestAYoungWorkspaceWhoseLogicalClusterNeverArrivesBecomesUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		young := workspace(func(ws *tenancyv1alpha1.Workspace) { placed(ws); ws.CreationTimestamp = metav1.Now() })
		o := objecttest.New(t, young)
		c := newController(o)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.Run(ctx)
		time.Sleep(grace / 2)
		if got := look(t, o); got.ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			t.Errorf("after half of the time to wait, the phase is %s", got.ws.Status.Phase)
		}
		time.Sleep(grace)
		if got := look(t, o); got.ws.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable {
			t.Errorf("after the time to wait, the phase is %s", got.ws.Status.Phase)
		}
	})
}
