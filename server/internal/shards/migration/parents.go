package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Calls about the record of a placement, to the shard that holds the parent.
const (
	callRecord  = "placements.record"
	callReplace = "placements.replace"
)

// Parents reads and changes the records of placements in Workspaces of this shard and of others.
type Parents struct {
	// Shard is the name of this shard.
	Shard   string
	Clients *peers.Clients
	// Workspaces stores those of this shard.
	Workspaces storage.Objects
	// OwnerShard returns the shard that holds the Workspace of a LogicalCluster. current ignores what is remembered.
	OwnerShard func(ctx context.Context, lc *corev1alpha1.LogicalCluster, current bool) (string, error)
	// Accepts returns an error for a migration that no administrator has created, or that is deleted.
	Accepts func(ctx context.Context, m Migration) error
}

// owned identifies the record of a cluster.
type owned struct {
	Parent logicalcluster.Name `json:"parent"`
	// Name and UID are those of the Workspace.
	Name    string              `json:"name"`
	UID     types.UID           `json:"uid"`
	Cluster logicalcluster.Name `json:"cluster"`
}

// replacement is the compare-and-swap of a record.
type replacement struct {
	Owned     owned            `json:"owned"`
	Migration Migration        `json:"migration"`
	Before    placement.Record `json:"before"`
	After     placement.Record `json:"after"`
	// UID is that of the LogicalCluster.
	UID types.UID `json:"uid"`
}

// Serve adds the calls.
func (p *Parents) Serve(s *peers.Server) {
	peers.Handle(s, callRecord, []peers.Kind{peers.Shard}, p.record)
	peers.Handle(s, callReplace, []peers.Kind{peers.Shard}, p.replace)
}

var workspaces = tenancyv1alpha1.Resource("workspaces")

// workspace reads a Workspace. While its cluster moves, or is on another shard, the storage refuses that.
func (p *Parents) workspace(ctx context.Context, o owned) (*tenancyv1alpha1.Workspace, error) {
	ws := &tenancyv1alpha1.Workspace{}
	err := p.Workspaces.Get(logicalcluster.WithName(ctx, o.Parent), o.Name, ws)
	if err == nil {
		err = o.check(ws)
	}
	return ws, err
}

// check returns an error if a Workspace is not the one of the cluster. One with another UID was created after that was deleted.
func (o owned) check(ws *tenancyv1alpha1.Workspace) error {
	switch {
	case ws.UID != o.UID:
		gone := apierrors.NewNotFound(workspaces, o.Name)
		gone.ErrStatus.Message = fmt.Sprintf("workspace %q is not the Workspace of logical cluster %q, which is deleted", o.Name, o.Cluster)
		return gone
	case placement.Of(ws).Cluster != o.Cluster:
		return apierrors.NewConflict(workspaces, o.Name, fmt.Errorf("it is not the Workspace of logical cluster %q", o.Cluster))
	}
	return nil
}

func (p *Parents) record(ctx context.Context, _ peers.Identity, in owned) (placement.Record, error) {
	ws, err := p.workspace(ctx, in)
	if err != nil {
		return placement.Record{}, err
	}
	return placement.Of(ws), nil
}

// done is the empty response to a call.
type done struct{}

// replace changes a record for the destination of a migration that an administrator has created: to the commit, or to the abort.
func (p *Parents) replace(ctx context.Context, caller peers.Identity, in replacement) (done, error) {
	m := in.Migration
	commit := in.After == m.after(in.Before)
	if caller != (peers.Identity{Kind: peers.Shard, Name: m.Destination}) || m.Cluster != in.Owned.Cluster || in.Before.Cluster != m.Cluster ||
		m.verdict(in.Before) != undecided || !commit && in.After != m.afterAbort(in.Before) {
		return done{}, apierrors.NewForbidden(migrationResource, string(m.UID), fmt.Errorf("%s may not change the placement of logical "+
			"cluster %q in this way", caller, m.Cluster))
	}
	if err := p.Accepts(ctx, m); err != nil && (commit || !IsCanceled(err)) {
		return done{}, err
	}
	return done{}, p.Workspaces.Update(logicalcluster.WithName(ctx, in.Owned.Parent), in.Owned.Name, &tenancyv1alpha1.Workspace{},
		func(obj runtime.Object) error { return in.write(obj.(*tenancyv1alpha1.Workspace)) })
}

// write changes the record in a Workspace, or returns a conflict.
func (in replacement) write(ws *tenancyv1alpha1.Workspace) error {
	if err := in.Owned.check(ws); err != nil {
		return err
	}
	if current := placement.Of(ws); current != in.Before {
		return apierrors.NewConflict(workspaces, ws.Name, fmt.Errorf("shard %q holds logical cluster %q at epoch %d", current.Shard,
			current.Cluster, current.Epoch))
	}
	scheduling.SetPlacement(ws, in.After.Shard, in.After.Cluster)
	ws.Annotations[tenancyv1alpha1.EpochAnnotation] = strconv.FormatUint(in.After.Epoch, 10)
	if in.Before.UID == "" && in.UID != "" {
		ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = string(in.UID)
	}
	return nil
}

// placed is the Records of a cluster with a known LogicalCluster.
type placed struct {
	*Parents
	migration Migration
	lc        *corev1alpha1.LogicalCluster
}

func (p placed) owned() owned {
	o := p.lc.Spec.Owner
	return owned{Parent: logicalcluster.Name(o.Cluster), Name: o.Name, UID: o.UID, Cluster: p.migration.Cluster}
}

// Record implements Records.
func (p placed) Record(ctx context.Context, _ logicalcluster.Name) (placement.Record, error) {
	shard, err := p.OwnerShard(ctx, p.lc, true)
	if err != nil {
		return placement.Record{}, err
	}
	return p.recordAt(ctx, shard, p.owned())
}

// recordAt reads a record on a shard, which can be this one.
func (p *Parents) recordAt(ctx context.Context, shard string, of owned) (record placement.Record, err error) {
	if shard == p.Shard {
		record, err = p.record(ctx, peers.Identity{Kind: peers.Shard, Name: p.Shard}, of)
	} else {
		record, err = peers.Call[owned, placement.Record](ctx, p.Clients, shard, callRecord, of)
	}
	if isAbsent(err) {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	return record, err
}

// errGone means that the shard of the Workspace says that it does not exist. The holder has deleted the logical cluster before.
var errGone = errors.New("the workspace is deleted")

// isAbsent reports whether a shard does not have a Workspace. A shard of another version can lack the call, which is another error.
func isAbsent(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == workspaces.Resource
}

// Replace implements Records.
func (p placed) Replace(ctx context.Context, before, after placement.Record) error {
	shard, err := p.OwnerShard(ctx, p.lc, true)
	if err != nil {
		return err
	}
	in := replacement{Owned: p.owned(), Migration: p.migration, Before: before, After: after, UID: p.lc.UID}
	if shard == p.Shard {
		_, err = p.replace(ctx, peers.Identity{Kind: peers.Shard, Name: p.Shard}, in)
		return err
	}
	_, err = peers.Call[replacement, done](ctx, p.Clients, shard, callReplace, in)
	return err
}

// originRecords are the Records of an origin, which has the LogicalCluster until it is cleaned.
type originRecords struct {
	*Parents
	store  *storage.Backend
	copies *storage.Copies
}

// OriginRecords returns the Records of an Origin.
func (p *Parents) OriginRecords(store *storage.Backend, copies *storage.Copies) Records {
	return originRecords{p, store, copies}
}

// Record implements Records. Behind a fence of a cluster that was moved, the fence is the record.
func (o originRecords) Record(ctx context.Context, cluster logicalcluster.Name) (placement.Record, error) {
	fence, _, err := o.store.Fence(ctx, cluster)
	if err == nil && fence != nil && fence.State == storage.FenceMoved {
		return placement.Record{Shard: fence.Shard, Epoch: fence.Epoch, Cluster: cluster}, nil
	}
	var lc *corev1alpha1.LogicalCluster
	if err == nil {
		lc, err = logicalClusterOf(ctx, o.copies, cluster)
	}
	if err != nil {
		return placement.Record{}, err
	}
	if lc == nil || lc.Spec.Owner == nil {
		return placement.Record{}, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), string(cluster))
	}
	return placed{o.Parents, Migration{Cluster: cluster}, lc}.Record(ctx, cluster)
}

// Replace implements Records: an origin does not change the record.
func (originRecords) Replace(context.Context, placement.Record, placement.Record) error {
	return errors.New("only the destination of a migration changes the placement")
}

// logicalClusterOf returns the stored LogicalCluster of a cluster, also behind a fence; nil if there is none.
func logicalClusterOf(ctx context.Context, copies *storage.Copies, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	object, err := copies.LogicalCluster(logicalcluster.WithName(ctx, cluster))
	if err != nil || object == nil {
		return nil, err
	}
	lc := &corev1alpha1.LogicalCluster{}
	return lc, json.Unmarshal(object, lc)
}
