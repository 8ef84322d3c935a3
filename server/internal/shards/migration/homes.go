package migration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Homes lets the home of a user be created on a shard from which an earlier home of the user has moved away. The logical clusters of both
// have the same name.
type Homes struct {
	Parents *Parents
	Store   *storage.Backend
	Copies  *storage.Copies
}

// MakeRoom removes the fence of a home that has moved away from this shard, and what remains behind it, before another home is created for
// the Workspace with a UID. If there is no such fence, it does nothing.
//
// Only the record of that Workspace permits this: a shard that has moved a home away gets it back by another migration, which replaces the
// fence before the record names the shard. So if the record names this shard, the fence is that of a home that is deleted. A creation that
// arrives after its home has moved finds another shard in the record.
func (h *Homes) MakeRoom(ctx context.Context, home logicalcluster.Name, owner types.UID) error {
	fence, _, err := h.Store.Fence(ctx, home)
	if err != nil || fence == nil || fence.State != storage.FenceMoved {
		return err
	}
	record, err := h.Parents.recordAt(ctx, peers.Root, owned{Parent: logicalcluster.Homes, Name: string(home), UID: owner, Cluster: home})
	if err != nil {
		return err
	}
	if record.Shard != h.Parents.Shard {
		return apierrors.NewConflict(corev1alpha1.Resource("logicalclusters"), string(home),
			fmt.Errorf("this shard does not hold the home: it is on shard %q", record.Shard))
	}
	return h.Copies.Reopen(logicalcluster.WithName(ctx, home), fence, owner)
}
