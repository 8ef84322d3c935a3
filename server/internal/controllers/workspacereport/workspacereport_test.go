package workspacereport

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/workspaces"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	key      = informers.Key{Cluster: "child", Name: corev1alpha1.LogicalClusterName}
	errRoute = errors.New("no route to the shard")
)

// cluster returns a logical cluster whose Workspace is in a parent, on the shard that it was last seen on.
func cluster(name, uid, parent, ownerShard string) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(name, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: corev1alpha1.LogicalClusterName, UID: types.UID(uid),
		Annotations: map[string]string{tenancyv1alpha1.OwnerShardAnnotation: ownerShard},
	}})
	if parent != "" {
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: parent, Name: "ws", UID: "of-the-workspace"}
	}
	return lc
}

// call is a call to another shard with the states or Workspaces of a page.
type call struct {
	Shard    string
	Deleted  bool
	UIDs     []types.UID
	Compared []string
}

// others answers calls with verdicts in turn, and with errors for a shard.
type others struct {
	calls    []call
	verdicts []workspaces.Verdict
	movedTo  string
	failing  string
}

func (o *others) Report(_ context.Context, shard string, page []workspaces.State) ([]workspaces.Verdict, error) {
	c := call{Shard: shard, Deleted: page[0].Existence == workspaces.Deleted}
	for _, s := range page {
		c.UIDs = append(c.UIDs, s.UID)
	}
	o.calls = append(o.calls, c)
	if shard == o.failing {
		return nil, errRoute
	}
	given := o.verdicts[:len(page)]
	o.verdicts = o.verdicts[len(page):]
	return given, nil
}

func (o *others) Compare(_ context.Context, shard string, page []*tenancyv1alpha1.Workspace) error {
	c := call{Shard: shard}
	for _, ws := range page {
		c.Compared = append(c.Compared, ws.Name)
	}
	o.calls = append(o.calls, c)
	if shard == o.failing {
		return errRoute
	}
	return nil
}

func (o *others) OwnerShard(_ context.Context, lc *corev1alpha1.LogicalCluster, moved bool) (string, error) {
	if moved {
		if o.movedTo == "" {
			return "", errRoute
		}
		return o.movedTo, nil
	}
	return lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation], nil
}

func inputs(t *testing.T, o *objecttest.Objects, calls *others) Inputs {
	t.Helper()
	orphans, err := RegisterOrphans(func(metrics.Registerable) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return Inputs{Set: o.Set, Calls: calls, Clusters: o.Stored(o.Set.LogicalClusters.Informer), ShardName: "here", Orphans: orphans}
}

func TestAStateIsReportedToTheShardThatHoldsTheWorkspace(t *testing.T) {
	one := []types.UID{"1"}
	type verdicts = []workspaces.Verdict
	for name, tc := range map[string]struct {
		lc      *corev1alpha1.LogicalCluster
		others  others
		want    []call
		orphan  bool
		retried bool
		shard   string // that the cluster remembers
	}{
		"the last known one": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.Accepted}}, []call{{"west", false, one, nil}}, false, false, "west",
		},
		"the one that it has moved to": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.NotHeld, workspaces.Accepted}, movedTo: "east"},
			[]call{{"west", false, one, nil}, {"east", false, one, nil}}, false, false, "east",
		},
		"one that cannot be found": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.NotHeld}}, []call{{"west", false, one, nil}}, false, true, "west",
		},
		"none that holds it": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.NotHeld, workspaces.NotHeld}, movedTo: "east"},
			[]call{{"west", false, one, nil}, {"east", false, one, nil}}, false, true, "west",
		},
		"one that does not respond": {
			cluster("child", "1", "parent", "west"), others{failing: "west"}, []call{{"west", false, one, nil}}, false, true, "west",
		},
		"one that fails": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.Failed}}, []call{{"west", false, one, nil}}, false, true, "west",
		},
		"one without a Workspace": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.Orphan}}, []call{{"west", false, one, nil}}, true, false, "west",
		},
		"one whose Workspace names another place": {
			cluster("child", "1", "parent", "west"), others{verdicts: verdicts{workspaces.Refused}}, []call{{"west", false, one, nil}}, true, false, "west",
		},
		"no shard, because the parent is here": {cluster("child", "1", "here", ""), others{}, nil, false, false, ""},
		"no shard, because it has no owner":    {cluster("child", "1", "", ""), others{}, nil, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.New(t, tc.lc, cluster("here", "2", "", ""))
			in := inputs(t, o, &tc.others)
			if err := New(in).Reconcile(t.Context(), key); (err != nil) != tc.retried {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tc.want, tc.others.calls); diff != "" {
				t.Error(diff)
			}
			if in.Orphans.names["child"] != tc.orphan {
				t.Errorf("orphans are %v", in.Orphans.names)
			}
			got := &corev1alpha1.LogicalCluster{}
			if err := in.Clusters.Get(logicalcluster.WithName(t.Context(), "child"), corev1alpha1.LogicalClusterName, got); err != nil {
				t.Fatal(err)
			}
			if shard := got.Annotations[tenancyv1alpha1.OwnerShardAnnotation]; shard != tc.shard {
				t.Errorf("the cluster remembers shard %q, want %q", shard, tc.shard)
			}
		})
	}
}

// A home can be created again under the name of its cluster while the shard of its Workspace does not respond.
func TestADeletionIsReportedUntilItIsAccepted(t *testing.T) {
	former, next := cluster("child", "1", "parent", "west"), cluster("child", "2", "parent", "west")
	o := objecttest.New(t, former)
	calls, ctx := &others{failing: "west"}, logicalcluster.WithName(t.Context(), "child")
	r := newReconciler(inputs(t, o, calls))
	o.Hide(former)
	r.handle(former, nil)
	o.Show(next)
	if err := r.reconcile(ctx, key); !errors.Is(err, errRoute) {
		t.Errorf("got error %v", err)
	}
	calls.failing, calls.verdicts = "", []workspaces.Verdict{workspaces.Accepted, workspaces.Accepted, workspaces.Accepted}
	for range 2 {
		if err := r.reconcile(ctx, key); err != nil {
			t.Error(err)
		}
	}
	want := []call{
		{"west", true, []types.UID{"1"}, nil},
		{"west", true, []types.UID{"1"}, nil}, {"west", false, []types.UID{"2"}, nil},
		{"west", false, []types.UID{"2"}, nil},
	}
	if diff := cmp.Diff(want, calls.calls); diff != "" {
		t.Error(diff)
	}
}

func TestEverythingIsComparedWithAShard(t *testing.T) {
	workspace := func(name, shard string, changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
		ws := objecttest.In("here", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Annotations: map[string]string{tenancyv1alpha1.ShardAnnotation: shard},
		}})
		ws.Spec.Cluster = "of-" + name
		for _, change := range changes {
			change(ws)
		}
		return ws
	}
	west := objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "west"}})
	objects := []objecttest.Object{
		west, cluster("here", "0", "", ""),
		cluster("one", "1", "parent", "west"), cluster("two", "2", "parent", "west"), cluster("three", "3", "parent", "east"),
		workspace("ours", "here"), workspace("theirs", "west"), workspace("others", "east"),
		workspace("waiting", "west", func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }),
		workspace("deleted", "west", func(ws *tenancyv1alpha1.Workspace) { ws.DeletionTimestamp = &metav1.Time{} }),
	}
	shard := informers.Key{Cluster: logicalcluster.Root, Name: "west"}
	for name, tc := range map[string]struct {
		objects []objecttest.Object
		others  others
		want    []call
		fails   bool
	}{
		"all states and Workspaces": {
			objects, others{verdicts: []workspaces.Verdict{workspaces.Accepted, workspaces.Orphan}},
			[]call{{"west", false, []types.UID{"1", "2"}, nil}, {"west", false, nil, []string{"theirs"}}}, false,
		},
		"a shard that does not respond": {objects, others{failing: "west"}, []call{{"west", false, []types.UID{"1", "2"}, nil}}, true},
		"a shard that does not exist":   {nil, others{}, nil, false},
		"nothing":                       {[]objecttest.Object{west}, others{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, objecttest.New(t, tc.objects...), &tc.others)
			in.Changes = New(in)
			if err := NewComparer(in).Reconcile(t.Context(), shard); (err != nil) != tc.fails {
				t.Errorf("got error %v", err)
			}
			sorted := cmp.Transformer("sort", func(uids []types.UID) map[types.UID]bool {
				set := map[types.UID]bool{}
				for _, uid := range uids {
					set[uid] = true
				}
				return set
			})
			if diff := cmp.Diff(tc.want, tc.others.calls, sorted); diff != "" {
				t.Error(diff)
			}
			if n := len(in.Orphans.names); (n == 1) != (len(tc.others.calls) == 2) {
				t.Errorf("there are %d orphans", n)
			}
		})
	}
}
