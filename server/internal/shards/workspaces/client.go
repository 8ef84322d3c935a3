package workspaces

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var _ interface {
	Create(context.Context, string, logicalcluster.Name, *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error)
} = (*Calls)(nil)

// place returns the place of the Workspaces in a cluster of this shard.
func (c *Calls) place(cluster logicalcluster.Name) (Parent, error) {
	ancestors, ok := c.Scheduler.Tree.Ancestors(cluster)
	if !ok {
		return Parent{}, apierrors.NewServiceUnavailable(fmt.Sprintf("the logical clusters above %q are not known to this shard", cluster))
	}
	return Parent{Cluster: cluster, Path: c.Scheduler.Tree.Path(cluster), Ancestors: ancestors}, nil
}

// Create implements scheduling.Remote.
func (c *Calls) Create(ctx context.Context, shard string, name logicalcluster.Name,
	lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	parent, err := c.place(logicalcluster.Name(lc.Spec.Owner.Cluster))
	if err != nil {
		return nil, err
	}
	state, err := peers.Call[Creation, State](ctx, c.Clients, shard, callCreate, creationOf(name, lc, parent))
	if err != nil {
		return nil, err
	}
	if problem := state.problem(); problem != "" || state.Existence != Exists || state.UID == "" {
		return nil, fmt.Errorf("shard %q responded to %s with an invalid state: %s", shard, callCreate, cmp.Or(problem, "no LogicalCluster"))
	}
	created := lc.DeepCopy()
	created.UID, created.Status = state.UID, state.logicalCluster().Status
	return created, nil
}

// Delete deletes the logical cluster of a Workspace on another shard. It returns nil when that is deleted, and will never exist again. If
// the cluster has moved from the shard in the record, the shard where it is deletes it.
func (c *Calls) Delete(ctx context.Context, ws *tenancyv1alpha1.Workspace,
	cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	parent, err := c.place(logicalcluster.Of(ws))
	if err != nil {
		return nil, err
	}
	in := Deletion{Cluster: cluster, Parent: parent, Name: ws.Name, UID: ws.UID, Follows: true}
	shard := c.Scheduler.ShardOf(ws)
	for range maxMoves {
		state, err := c.deleteOn(ctx, shard, in)
		switch {
		case err != nil:
			return nil, err
		case state.problem() != "" || state.Owner.UID != ws.UID || state.Cluster != cluster || state.Existence == Missing:
			return nil, fmt.Errorf("shard %q responded to %s with an invalid state", shard, callDelete)
		case state.Existence != Moved:
			return state.logicalCluster(), nil
		}
		shard = state.To
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("logical cluster %q moves", cluster))
}

// maxMoves limits the number of calls for a cluster that has moved since the record of its Workspace: the shard of the Workspace was
// restored.
const maxMoves = 4

// deleteOn deletes a logical cluster on a shard, which may be this one.
func (c *Calls) deleteOn(ctx context.Context, shard string, in Deletion) (State, error) {
	if c.Quarantined(shard) {
		return State{}, inQuarantine(shard)
	}
	if shard == c.Scheduler.ShardName {
		return c.delete(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, in)
	}
	return peers.Call[Deletion, State](ctx, c.Clients, shard, callDelete, in)
}

// Report reports the states of logical clusters of this shard to the shard of their Workspaces. There is a verdict on each.
func (c *Calls) Report(ctx context.Context, shard string, page []State) ([]Verdict, error) {
	out, err := peers.Call[states, verdicts](ctx, c.Clients, shard, callReport, states{Items: page})
	if err == nil && len(out.Items) != len(page) {
		err = fmt.Errorf("shard %q responded to %s with %d of %d verdicts", shard, callReport, len(out.Items), len(page))
	}
	return out.Items, err
}

// Compare reads the states of the logical clusters of Workspaces on another shard, and shows them.
func (c *Calls) Compare(ctx context.Context, shard string, page []*tenancyv1alpha1.Workspace) error {
	in := references{}
	for _, ws := range page {
		in.Items = append(in.Items, Reference{
			Cluster: placement.Of(ws).Cluster, Owner: Owner{Cluster: logicalcluster.Of(ws), Name: ws.Name, UID: ws.UID},
		})
	}
	out, err := peers.Call[references, states](ctx, c.Clients, shard, callStates, in)
	if err == nil && len(out.Items) != len(page) {
		err = fmt.Errorf("shard %q responded to %s with %d of %d states", shard, callStates, len(out.Items), len(page))
	}
	if err != nil {
		return err
	}
	for i, state := range out.Items {
		state.Cluster, state.Owner = in.Items[i].Cluster, in.Items[i].Owner
		if state.Existence != Exists {
			state.Epoch = placement.Of(page[i]).Epoch
		}
		c.Show(ctx, shard, state)
	}
	return nil
}

// OwnerShard returns the shard of the Workspace of a LogicalCluster: the one that was last seen to hold it or, if that no longer holds it,
// the one that the records name.
func (c *Calls) OwnerShard(ctx context.Context, lc *corev1alpha1.LogicalCluster, moved bool) (string, error) {
	if shard := ownerShard(lc); shard != "" && !moved {
		return shard, nil
	}
	return c.holders.holder(ctx, parentOf(lc), moved)
}

func ownerShard(lc *corev1alpha1.LogicalCluster) string {
	return lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation]
}

// readRecord reads the record of a Workspace from the shard that holds its cluster.
func (c *Calls) readRecord(ctx context.Context, shard string, of question) (string, error) {
	var found record
	var err error
	if shard == c.Scheduler.ShardName {
		found, err = c.record(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, of)
	} else {
		found, err = peers.Call[question, record](ctx, c.Clients, shard, callRecord, of)
	}
	return found.Shard, err
}
