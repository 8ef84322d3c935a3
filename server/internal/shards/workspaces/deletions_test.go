package workspaces

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// late is a tombstone that another Workspace precedes: its cluster with the same name arrives while the tombstone is stored.
type late struct {
	graves
	arrive func()
}

func (l late) Put(ctx context.Context, cluster logicalcluster.Name, owner types.UID) error {
	l.arrive()
	return l.graves.Put(ctx, cluster, owner)
}

func TestADeletionSparesTheClusterOfAnotherWorkspaceThatArrives(t *testing.T) {
	i := start(t)
	b := i.shards["b"]
	b.Tombstones = late{b.graves, func() {
		lc := cluster(team, "root:org:team", org)
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: org, Name: "team", UID: "another"}
		b.Store(lc)
	}}
	if got, err := i.delete(t, "a", uid); err != nil || got.Existence != Deleted {
		t.Errorf("got %+v, %v", got, err)
	}
	if lc := b.stored(t, team); lc.DeletionTimestamp != nil {
		t.Error("the cluster of another Workspace is deleted")
	}
}

// The shard of a Workspace was restored to a state from before its logical cluster moved.
func TestADeletionFollowsAClusterThatHasMoved(t *testing.T) {
	for name, to := range map[string]string{"to another shard": "root", "to the shard of the Workspace": "a"} {
		t.Run(name, func(t *testing.T) {
			i := start(t)
			i.shards["b"].moved[team] = to
			if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); err != nil || lc != nil {
				t.Errorf("got %v, %v", lc, err)
			}
			if got := i.shards[to].graves[uid]; got != team {
				t.Errorf("shard %s has the tombstone %q", to, got)
			}
			if len(i.shards["b"].graves) > 0 {
				t.Error("the shard that the cluster has left has a tombstone")
			}
		})
	}
}

func TestADeletionWaitsWhileAClusterMoves(t *testing.T) {
	i := start(t)
	i.shards["b"].moved[team], i.shards["root"].moved[team] = "root", "b"
	if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); !apierrors.IsServiceUnavailable(err) || lc != nil {
		t.Errorf("a cluster that two shards have left: %v, %v", lc, err)
	}
	i.shards["root"].moved[team] = ""
	i.shards["a"].quarantined = "root"
	if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); !apierrors.IsServiceUnavailable(err) || lc != nil {
		t.Errorf("a cluster that has moved to a restored shard: %v, %v", lc, err)
	}
	// Only the shard of the Workspace learns where the cluster is, and a caller that does not know the answer gets an error.
	in := Deletion{Cluster: team, Parent: Parent{Cluster: org, Path: "root:org", Ancestors: []logicalcluster.Name{"root"}}, Name: "team", UID: uid, Follows: true}
	if got, err := i.shards["b"].Calls.delete(t.Context(), peers.Identity{Kind: peers.Shard, Name: "root"}, in); !apierrors.IsForbidden(err) {
		t.Errorf("another shard got %+v, %v", got, err)
	}
	if got, err := i.delete(t, "a", uid); !apierrors.IsConflict(err) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNothingIsDeletedWhileAShardDoesNotKnowWhatHasMoved(t *testing.T) {
	i := start(t)
	b := i.shards["b"]
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	b.leftErr = errors.New("etcd is away")
	if got, err := i.delete(t, "a", uid); err == nil {
		t.Errorf("got %+v", got)
	}
	if lc := b.stored(t, team); lc.DeletionTimestamp != nil || len(b.graves) > 0 {
		t.Errorf("it is deleted, or has a tombstone: %v", b.graves)
	}
}

// A Workspace is deleted only if its shard says that the logical cluster of exactly this Workspace is deleted.
func TestAnAnswerAboutAnotherDeletionDeletesNothing(t *testing.T) {
	gone := State{Existence: Deleted, Cluster: team, Owner: Owner{Cluster: org, Name: "team", UID: uid}}
	for name, c := range map[string]struct {
		change func(*State)
		valid  bool
	}{
		"deleted":              {func(*State) {}, true},
		"missing":              {func(s *State) { s.Existence = Missing }, false},
		"of another Workspace": {func(s *State) { s.Owner.UID = "another" }, false},
		"another cluster":      {func(s *State) { s.Cluster = org }, false},
	} {
		i, answer := start(t), gone
		c.change(&answer)
		calls := peers.NewServer(i.authority, scheme.Codecs)
		peers.Handle(calls, callDelete, []peers.Kind{peers.Shard}, func(context.Context, peers.Identity, Deletion) (State, error) {
			return answer, nil
		})
		i.serve(t, "b", calls)
		if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); lc != nil || (err == nil) != c.valid {
			t.Errorf("%s: got %v, %v", name, lc, err)
		}
	}
}

func TestOnlyTheClustersOfWorkspacesAreDeletedForOtherShards(t *testing.T) {
	i := start(t)
	parent := Parent{Cluster: org, Path: "root:org", Ancestors: []logicalcluster.Name{"root"}}
	for name, in := range map[string]Deletion{
		"root":                     {Cluster: logicalcluster.Root, Parent: parent, Name: "team", UID: uid},
		"a cluster of the system":  {Cluster: "system:admin", Parent: parent, Name: "team", UID: uid},
		"of no Workspace":          {Cluster: team, Parent: parent, Name: "team"},
		"a home that is not below": {Cluster: "0000000000000000", Parent: Parent{Cluster: logicalcluster.Homes}, Name: "team", UID: uid},
	} {
		_, err := peers.Call[Deletion, State](t.Context(), i.shards["a"].Clients, "b", callDelete, in)
		if !apierrors.IsBadRequest(err) || len(i.shards["b"].graves) > 0 {
			t.Errorf("%s: got %v, tombstones %v", name, err, i.shards["b"].graves)
		}
	}
}
