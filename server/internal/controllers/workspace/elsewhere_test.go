package workspace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// there is shard "there". Its answers are the same for all calls.
type there struct {
	err     error
	answer  *corev1alpha1.LogicalCluster // to a deletion
	created []logicalcluster.Name
	deleted int
}

func (s *there) Create(_ context.Context, shard string, name logicalcluster.Name, lc *corev1alpha1.LogicalCluster) (
	*corev1alpha1.LogicalCluster, error) {
	if shard != "there" {
		return nil, errors.New("unexpected shard " + shard)
	}
	s.created = append(s.created, name)
	lc = lc.DeepCopy()
	lc.UID = "made"
	return lc, s.err
}

func (s *there) delete(context.Context, *tenancyv1alpha1.Workspace, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	s.deleted++
	return s.answer, s.err
}

// elsewhere is the change to a workspace that is placed on shard "there".
func elsewhere(ws *tenancyv1alpha1.Workspace) { scheduling.SetPlacement(ws, "there", inside) }

func removed(ws *tenancyv1alpha1.Workspace) {
	elsewhere(ws)
	now := metav1.Now()
	ws.Spec.Cluster, ws.DeletionTimestamp = inside, &now
}

func TestTheNextStepOfAWorkspaceOnAnotherShard(t *testing.T) {
	silent := &peers.Unreachable{Shard: "there", Err: errors.New("no route")}
	taken := apierrors.NewAlreadyExists(corev1alpha1.Resource("logicalclusters"), inside)
	waits := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Terminators: []corev1alpha1.LogicalClusterTerminator{"root:x"}}}
	scheduled := func(o outcome) corev1alpha1.Condition { return condition(o.ws, tenancyv1alpha1.WorkspaceScheduled) }
	content := func(o outcome) corev1alpha1.Condition {
		return condition(o.ws, tenancyv1alpha1.WorkspaceContentDeleted)
	}
	for name, tc := range map[string]struct {
		ws    *tenancyv1alpha1.Workspace
		there *there
		fails bool
		want  func(outcome, *there) bool
	}{
		"a new one: its place, before anything is created": {
			workspace(func(*tenancyv1alpha1.Workspace) {}), &there{}, false, func(o outcome, s *there) bool {
				return o.ws.Annotations[tenancyv1alpha1.ShardAnnotation] == "there" && len(s.created) == 0 && len(o.ws.Finalizers) == 1 &&
					scheduling.IsNewName(logicalcluster.Name(o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation]))
			},
		},
		"one with a place: the logical cluster of this name": {
			workspace(elsewhere), &there{}, false, func(o outcome, s *there) bool {
				return slices.Equal(s.created, []logicalcluster.Name{inside}) && o.ws.Spec.Cluster == inside && o.ws.Status.Phase == "Ready" &&
					o.ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] == "made" && scheduled(o).Status == metav1.ConditionTrue &&
					o.ws.Spec.URL == "https://there.test/clusters/root:team"
			},
		},
		"one that was unschedulable: it is ready": {
			workspace(func(ws *tenancyv1alpha1.Workspace) {
				elsewhere(ws)
				setUnscheduled(ws, errors.New("no shard"))
			}), &there{}, false, func(o outcome, _ *there) bool {
				return scheduled(o).Status == metav1.ConditionTrue && o.ws.Status.Phase == "Ready"
			},
		},
		"a young one: nothing, because its request continues": {
			workspace(func(ws *tenancyv1alpha1.Workspace) { elsewhere(ws); ws.CreationTimestamp = metav1.Now() }), &there{}, false,
			func(o outcome, s *there) bool { return len(s.created) == 0 && o.n["workspaces"] == 0 },
		},
		"one whose shard does not respond: the same place, and a condition": {
			workspace(elsewhere), &there{err: silent}, true, func(o outcome, _ *there) bool {
				return o.ws.Spec.Cluster == "" && o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation] == inside &&
					strings.Contains(scheduled(o).Message, `waiting for shard "there"`)
			},
		},
		"one whose name is taken: no place": {
			workspace(elsewhere), &there{err: taken}, false, func(o outcome, _ *there) bool {
				return o.ws.Annotations[tenancyv1alpha1.ClusterAnnotation]+o.ws.Annotations[tenancyv1alpha1.ShardAnnotation] == ""
			},
		},
		"a settled one: nothing, although this shard has no such logical cluster": {
			workspace(func(ws *tenancyv1alpha1.Workspace) { elsewhere(ws); placed(ws) }), &there{}, false,
			func(o outcome, s *there) bool { return o.n["workspaces"] == 0 && len(s.created) == 0 },
		},
		"one that is deleted, whose shard does not respond: it stays": {
			workspace(removed), &there{err: silent}, true, func(o outcome, _ *there) bool {
				return o.ws != nil && len(o.ws.Finalizers) == 1 && strings.Contains(content(o).Message, "does not respond")
			},
		},
		"one that is deleted, whose logical cluster waits: what for": {
			workspace(removed), &there{answer: waits}, false, func(o outcome, _ *there) bool {
				return len(o.ws.Finalizers) == 1 && o.ws.Status.Phase == "Terminating" && len(o.ws.Status.Terminators) == 1
			},
		},
		"one that is deleted, whose shard says that the logical cluster is: it goes": {
			workspace(removed), &there{}, false, func(o outcome, s *there) bool { return o.ws == nil && s.deleted == 1 },
		},
		"one that is deleted before its logical cluster was created: its shard refuses a later creation": {
			workspace(func(ws *tenancyv1alpha1.Workspace) { removed(ws); ws.Spec.Cluster = "" }), &there{}, false,
			func(o outcome, s *there) bool { return o.ws == nil && s.deleted == 1 },
		},
		"one that is deleted and held by others: its logical cluster stays": {
			workspace(func(ws *tenancyv1alpha1.Workspace) {
				removed(ws)
				ws.Finalizers = append(ws.Finalizers, "example.org/mine")
			}), &there{}, false, func(o outcome, s *there) bool {
				return s.deleted == 0 && len(o.ws.Finalizers) == 2 && o.ws.Status.Phase == "Deleting"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := shard("there")
			other.Spec.ExternalURL = "https://there.test"
			root := objecttest.In("root", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
				Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{corev1alpha1.PathAnnotation: "root"},
			}})
			o := objecttest.New(t, tc.ws, other, root)
			tree := pathindex.New(o.Set)
			clusters, workspaces := o.Stored(o.Set.LogicalClusters.Informer), o.Stored(o.Set.Workspaces.Informer)
			c := New(Inputs{Set: o.Set, Clusters: clusters, Workspaces: workspaces, Clock: clock.RealClock{}, Elsewhere: tc.there.delete,
				Scheduler: &scheduling.Scheduler{
					Clusters: clusters, LogicalClusters: o.Set.LogicalClusters, Shards: o.Set.Shards, Tree: tree, Types: workspacetypes.New(o.Set, tree),
					ShardName: "here", ExternalURL: "https://kcp.test", Remote: tc.there, Answers: func(string) bool { return true },
				}})
			if err := c.Reconcile(t.Context(), key); (err != nil) != tc.fails {
				t.Fatal(err)
			}
			if got := look(t, o); !tc.want(got, tc.there) {
				t.Errorf("workspace: %+v\nwrites: %v\ncalls: %+v", got.ws, got.n, tc.there)
			}
		})
	}
}

// The informer may still show a workspace that is gone, after another one was created under its name.
func TestTheControllerWaitsForTheRequestThatCreatesOnAnotherShard(t *testing.T) {
	now := time.Now()
	young := func(ws *tenancyv1alpha1.Workspace) {
		elsewhere(ws)
		ws.CreationTimestamp = metav1.NewTime(now.Add(-500 * time.Millisecond))
	}
	r := &reconciler{Inputs: Inputs{Clock: testingclock.NewFakeClock(now),
		Scheduler: &scheduling.Scheduler{ShardName: "here", Remote: &there{}}}}
	for name, tc := range map[string]struct {
		ws   *tenancyv1alpha1.Workspace
		want time.Duration
	}{
		"a young one: until a second after its request ends": {workspace(young), scheduling.CreationBudget + 500*time.Millisecond},
		"an old one: not at all":                             {workspace(elsewhere), 0},
		"one that is complete: not at all":                   {workspace(func(ws *tenancyv1alpha1.Workspace) { young(ws); placed(ws) }), 0},
		"one that is deleted: not at all": {workspace(func(ws *tenancyv1alpha1.Workspace) {
			young(ws)
			removed(ws)
			ws.Spec.Cluster = ""
		}), 0},
		"one on this shard: not at all": {workspace(func(ws *tenancyv1alpha1.Workspace) {
			young(ws)
			scheduling.SetPlacement(ws, "here", inside)
		}), 0},
	} {
		if got := r.requestContinues(tc.ws); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestALogicalClusterIsNoReasonToLookForAWorkspaceOnAnotherShard(t *testing.T) {
	lc := cluster(nil)
	for name, tc := range map[string]struct {
		ws   *tenancyv1alpha1.Workspace
		want []informers.Key
	}{
		"its workspace is on another shard":           {nil, nil},
		"its workspace is on this shard, and settled": {workspace(placed), nil},
		"its workspace is on this shard, and not":     {workspace(func(*tenancyv1alpha1.Workspace) {}), []informers.Key{key}},
	} {
		objects := []objecttest.Object{lc}
		if tc.ws != nil {
			objects = append(objects, tc.ws)
		}
		o := objecttest.New(t, objects...)
		r := newReconciler(Inputs{Set: o.Set, Scheduler: &scheduling.Scheduler{ShardName: "here", ExternalURL: "https://kcp.test"}})
		if got := r.clusterChanged(lc); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestTheDeletionOfAWorkspaceLeavesTheNextOneOfItsName(t *testing.T) {
	for name, finalizers := range map[string][]string{"ours": nil, "of others too": {"example.org/mine"}} {
		t.Run(name, func(t *testing.T) {
			gone := workspace(func(ws *tenancyv1alpha1.Workspace) {
				removed(ws)
				ws.Finalizers = append(ws.Finalizers, finalizers...)
			})
			next := workspace(func(ws *tenancyv1alpha1.Workspace) {
				elsewhere(ws)
				placed(ws)
				ws.UID = "next"
			})
			for what, next := range map[string]*tenancyv1alpha1.Workspace{"placed": next, "without a place": workspace(
				func(ws *tenancyv1alpha1.Workspace) { ws.UID = "next" })} {
				o, s := objecttest.New(t, gone), &there{}
				o.Store(next)
				clusters, workspaces := o.Stored(o.Set.LogicalClusters.Informer), o.Stored(o.Set.Workspaces.Informer)
				c := New(Inputs{Set: o.Set, Clusters: clusters, Workspaces: workspaces, Clock: clock.RealClock{}, Elsewhere: s.delete,
					Scheduler: &scheduling.Scheduler{ShardName: "here", Remote: s}})
				if err := c.Reconcile(t.Context(), key); err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
				if got := look(t, o); s.deleted != 0 || workspaces.Writes != 0 || got.ws == nil {
					t.Errorf("%s: the other shard deleted %d logical clusters; the workspace is %+v", what, s.deleted, got.ws)
				}
			}
		})
	}
}

func TestAServerWithoutShardingKeepsWorkspacesOfOtherShards(t *testing.T) {
	o := objecttest.New(t, workspace(func(ws *tenancyv1alpha1.Workspace) {
		removed(ws)
		ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = "made"
	}))
	if err := newController(o).Reconcile(t.Context(), key); err == nil || look(t, o).ws == nil {
		t.Errorf("the workspace is %v: %v", look(t, o).ws, err)
	}
}
