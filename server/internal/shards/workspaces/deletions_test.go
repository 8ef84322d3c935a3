package workspaces

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
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
