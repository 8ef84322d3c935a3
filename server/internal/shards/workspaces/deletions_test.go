package workspaces

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

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
