package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// callReport is the call by which a destination reports the state of a migration to root.
const callReport = "migrations.report"

// Report is what a destination says about a migration.
type Report struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Status is the new status; nil only reads the object.
	Status *migrationv1alpha1.LogicalClusterMigrationStatus `json:"status,omitempty"`
}

// Reports shows in the LogicalClusterMigrations of root what destinations report. Only the root shard serves it.
type Reports struct{ Migrations storage.Objects }

// Serve adds the call.
func (r *Reports) Serve(s *peers.Server) {
	peers.Handle(s, callReport, []peers.Kind{peers.Shard}, r.Show)
}

// Send reports to the root shard.
func Send(ctx context.Context, clients *peers.Clients, in Report) (*migrationv1alpha1.LogicalClusterMigration, error) {
	return peers.Call[Report, *migrationv1alpha1.LogicalClusterMigration](ctx, clients, peers.Root, callReport, in)
}

// Show writes a report, and returns the object. The first plan of a migration stays: where it comes from, and its epoch.
func (r *Reports) Show(ctx context.Context, caller peers.Identity, in Report) (*migrationv1alpha1.LogicalClusterMigration, error) {
	ctx = logicalcluster.WithName(ctx, logicalcluster.Root)
	live := &migrationv1alpha1.LogicalClusterMigration{}
	if err := r.Migrations.Get(ctx, in.Name, live); err != nil {
		return nil, err
	}
	if live.UID != in.UID || caller.Name != live.Spec.DestinationShard && caller.Name != peers.Root {
		return nil, apierrors.NewForbidden(migrationResource, in.Name, fmt.Errorf("%s is not the destination of migration %s", caller, in.UID))
	}
	if in.Status == nil {
		return live, r.release(ctx, live)
	}
	err := r.Migrations.Update(ctx, in.Name, live, func(obj runtime.Object) error { return in.write(obj) })
	if apierrors.IsNotFound(err) || err == nil {
		return live, r.release(ctx, live)
	}
	return nil, err
}

// write writes the status, unless the migration has ended. A migration that runs has the finalizer, unless it was deleted before it began.
func (in Report) write(obj runtime.Object) error {
	live := obj.(*migrationv1alpha1.LogicalClusterMigration)
	if live.UID != in.UID {
		return apierrors.NewConflict(migrationResource, in.Name, errors.New("it was created again"))
	}
	before := live.Status
	if before.Phase.IsFinal() {
		return nil
	}
	if before.OriginShard != "" && (before.OriginShard != in.Status.OriginShard || before.Epoch != in.Status.Epoch) {
		return apierrors.NewConflict(migrationResource, in.Name, errors.New("it has another origin or epoch already"))
	}
	live.Status = *in.Status
	has := slices.Contains(live.Finalizers, migrationv1alpha1.RunningFinalizer)
	switch {
	case live.Status.Phase.IsFinal() && live.DeletionTimestamp == nil:
		live.Finalizers = slices.DeleteFunc(live.Finalizers, func(f string) bool { return f == migrationv1alpha1.RunningFinalizer })
	case !live.Status.Phase.IsFinal() && !has && live.DeletionTimestamp == nil:
		live.Finalizers = append(live.Finalizers, migrationv1alpha1.RunningFinalizer)
	}
	return nil
}

// release lets the deletion of a migration that has ended finish.
func (r *Reports) release(ctx context.Context, live *migrationv1alpha1.LogicalClusterMigration) error {
	if live.DeletionTimestamp == nil || !live.Status.Phase.IsFinal() {
		return nil
	}
	return r.Migrations.Release(ctx, live.Name, live.UID, migrationv1alpha1.RunningFinalizer,
		func() runtime.Object { return &migrationv1alpha1.LogicalClusterMigration{} })
}
