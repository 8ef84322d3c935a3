package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Tombstones are the clusters that must not be created again. storage.Tombstones implements it.
type Tombstones interface {
	Put(ctx context.Context, cluster logicalcluster.Name, owner types.UID) error
	Create(ctx context.Context, cluster logicalcluster.Name, owner types.UID, create func(context.Context) error) error
}

// Config is what the calls need. Storage reaches the cluster in each call's context.
type Config struct {
	Scheduler            *scheduling.Scheduler
	Clusters, Workspaces storage.Objects
	Tombstones           Tombstones
	// Holder returns the holder of a cluster according to what shards offer.
	Holder func(cluster logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Left reports whether this shard does not hold a cluster although it has its LogicalCluster, because it is moved.
	Left func(ctx context.Context, cluster logicalcluster.Name) (bool, error)
	// MovedTo returns the shard to which a cluster has moved from this one; empty if that is not so.
	MovedTo func(ctx context.Context, cluster logicalcluster.Name) (string, error)
	// Quarantined reports whether the store of a shard was restored, so that nothing is deleted on its word.
	Quarantined func(shard string) bool
	Clients     *peers.Clients
	Clock       clock.PassiveClock
}

// Calls are the calls about Workspaces and their logical clusters on other shards, to serve and to send.
type Calls struct {
	Config
	holders *holders
}

// New returns the calls.
func New(config Config) *Calls {
	c := &Calls{Config: config}
	c.holders = &holders{known: config.Holder, read: c.readRecord, clock: config.Clock, steps: lru.New(knownSteps)}
	return c
}

// Serve adds the calls to the server.
func (c *Calls) Serve(s *peers.Server) {
	shards := []peers.Kind{peers.Shard}
	peers.Handle(s, callCreate, shards, c.create)
	peers.Handle(s, callDelete, shards, c.delete)
	peers.Handle(s, callStates, shards, c.states)
	peers.Handle(s, callReport, shards, c.report)
	peers.Handle(s, callRecord, shards, c.record)
	peers.Handle(s, callLocate, shards, c.locate)
}

// create creates the logical cluster of a Workspace of the caller.
func (c *Calls) create(ctx context.Context, caller peers.Identity, in Creation) (State, error) {
	if problem := in.problem(); problem != "" {
		return State{}, apierrors.NewBadRequest(problem)
	}
	if err := c.holders.verify(ctx, caller, in.Parent); err != nil {
		return State{}, err
	}
	if shard, _, known := c.Holder(in.Cluster); known && shard != c.Scheduler.ShardName {
		return State{}, nameTaken(in.Cluster)
	}
	if err := c.Scheduler.PrepareHome(ctx, in.Parent.Cluster, in.Cluster, in.UID); err != nil {
		return State{}, err
	}
	inside := logicalcluster.WithName(ctx, in.Cluster)
	lc := in.logicalCluster(c.Scheduler.ShardName, c.Scheduler.ExternalURL, caller.Name)
	wait := c.Scheduler.ExpectCluster(in.Cluster)
	err := c.Tombstones.Create(inside, in.Cluster, in.UID, func(ctx context.Context) error {
		return c.Clusters.CreateAsRead(ctx, corev1alpha1.LogicalClusterName, lc)
	})
	wait(ctx, err == nil)
	if !apierrors.IsAlreadyExists(err) {
		return stateIn(in.Cluster, lc), err
	}
	live, err := c.logicalCluster(inside)
	if err != nil {
		return State{}, err
	}
	if live == nil || live.Spec.Owner == nil || live.Spec.Owner.UID != in.UID {
		return State{}, nameTaken(in.Cluster) // by another Workspace, or by a tombstone
	}
	return stateIn(in.Cluster, live), nil
}

func nameTaken(cluster logicalcluster.Name) error {
	err := apierrors.NewAlreadyExists(corev1alpha1.Resource("logicalclusters"), string(cluster))
	err.ErrStatus.Message = fmt.Sprintf("logical cluster %q is that of another Workspace, or was deleted: choose another name", cluster)
	return err
}

// stateIn returns the state of an object that may lack the annotation with its cluster.
func stateIn(cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) State {
	s := StateOf(lc)
	s.Cluster = cluster
	return s
}

// logicalCluster returns the LogicalCluster of the cluster of ctx that this shard holds, nil if there is none.
func (c *Calls) logicalCluster(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	if left, err := c.Left(ctx, cluster); err != nil || left {
		if left {
			err = apierrors.NewConflict(corev1alpha1.Resource("logicalclusters"), string(cluster), errMoved)
		}
		return nil, err
	}
	lc := &corev1alpha1.LogicalCluster{}
	err = c.Clusters.Get(ctx, corev1alpha1.LogicalClusterName, lc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lc, err
}

var errMoved = errors.New("this shard does not hold the logical cluster: it is moved")

// delete deletes the logical cluster of a Workspace of the caller. The answer Deleted is final: a tombstone is stored by then.
func (c *Calls) delete(ctx context.Context, caller peers.Identity, in Deletion) (State, error) {
	inside := logicalcluster.WithName(ctx, in.Cluster)
	gone := State{Existence: Deleted, Cluster: in.Cluster, Owner: Owner{Cluster: in.Parent.Cluster, Name: in.Name, UID: in.UID}}
	if !scheduling.IsNameFor(in.Parent.Cluster, in.Name, in.Cluster) || in.UID == "" {
		return State{}, apierrors.NewBadRequest(fmt.Sprintf("%.100q is not the name of a new logical cluster, or there is no uid", in.Cluster))
	}
	if c.Quarantined(caller.Name) {
		return State{}, inQuarantine(caller.Name)
	}
	if to, err := c.MovedTo(inside, in.Cluster); err != nil || to != "" && in.Follows {
		moved := gone
		moved.Existence, moved.To = Moved, to
		return moved, cmp.Or(err, c.holders.verify(ctx, caller, in.Parent))
	}
	lc, err := c.logicalCluster(inside)
	if err != nil {
		return State{}, err
	}
	if isOf(lc, in.UID) {
		err = c.holders.verifyOwner(ctx, caller, lc)
	} else {
		err = c.holders.verify(ctx, caller, in.Parent)
	}
	if err != nil {
		return State{}, err
	}
	if lc != nil && !isOf(lc, in.UID) { // of another Workspace, and therefore never of this one
		return gone, nil
	}
	if err := c.Tombstones.Put(ctx, in.Cluster, in.UID); err != nil {
		return State{}, err
	}
	// The LogicalCluster may have been created after it was read, but not after the tombstone was stored.
	live := &corev1alpha1.LogicalCluster{}
	err = c.Clusters.Update(inside, corev1alpha1.LogicalClusterName, live, func(obj runtime.Object) error {
		lc := obj.(*corev1alpha1.LogicalCluster)
		if !isOf(lc, in.UID) {
			return errOther
		}
		return scheduling.MarkDeleted(lc.UID)(obj)
	})
	switch {
	case apierrors.IsNotFound(err) || errors.Is(err, errOther):
		return gone, nil
	case err != nil:
		return State{}, err
	}
	return stateIn(in.Cluster, live), nil
}

// inQuarantine returns the error for a deletion that depends on the word of a restored shard.
func inQuarantine(shard string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the store of shard %q was restored: nothing is deleted on its word until "+
		"kubectl kcp check finds no conflict", shard))
}

var errOther = errors.New("the logical cluster is that of another Workspace")

func isOf(lc *corev1alpha1.LogicalCluster, owner types.UID) bool {
	return lc != nil && lc.Spec.Owner != nil && lc.Spec.Owner.UID == owner
}

// states returns the states of logical clusters on this shard, in order. Those that are not of a Workspace of the caller are missing.
func (c *Calls) states(ctx context.Context, caller peers.Identity, in references) (states, error) {
	if len(in.Items) > PageSize {
		return states{}, tooMany()
	}
	out := states{Items: make([]State, 0, len(in.Items))}
	for _, ref := range in.Items {
		state, err := c.state(ctx, caller, ref)
		if err != nil {
			return states{}, err
		}
		out.Items = append(out.Items, state)
	}
	return out, nil
}

func (c *Calls) state(ctx context.Context, caller peers.Identity, ref Reference) (State, error) {
	missing := State{Existence: Missing, Cluster: ref.Cluster, Owner: ref.Owner}
	lc, err := c.logicalCluster(logicalcluster.WithName(ctx, ref.Cluster))
	if apierrors.IsConflict(err) || (err == nil && !isOf(lc, ref.Owner.UID)) {
		return missing, nil
	}
	if err == nil {
		err = c.holders.verifyOwner(ctx, caller, lc)
	}
	switch {
	case apierrors.IsForbidden(err):
		return missing, nil
	case err != nil:
		return State{}, err // whether the caller is the owner is not known
	}
	return stateIn(ref.Cluster, lc), nil
}

func tooMany() error {
	return apierrors.NewBadRequest(fmt.Sprintf("more than %d logical clusters in one call", PageSize))
}

// record returns the shard in the record of a Workspace on this shard.
func (c *Calls) record(ctx context.Context, _ peers.Identity, in question) (record, error) {
	inside := logicalcluster.WithName(ctx, in.Parent)
	parent, err := c.logicalCluster(inside)
	if err != nil {
		return record{}, err
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err = apierrors.NewNotFound(workspaceResource, in.Name); parent != nil {
		err = c.Workspaces.Get(inside, in.Name, ws)
	}
	if err != nil {
		return record{}, err
	}
	found := placement.Of(ws)
	if !found.Valid() || found.Cluster != in.Cluster {
		return record{}, apierrors.NewNotFound(workspaceResource, in.Name)
	}
	return record{Shard: found.Shard}, nil
}
