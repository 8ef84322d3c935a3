package migration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Destination begins migrations to this shard, and continues them after a crash.
type Destination struct {
	Shard, Version string
	Store          *storage.Backend
	Copies         *storage.Copies
	Parents        *Parents
	Clients        *peers.Clients
	// Shards returns the names of all shards.
	Shards func() []string
	Clock  clock.PassiveClock
	// Arrive is that of a Mover.
	Arrive func(annotations map[string]string)
}

// Refusal is the error for a migration that does not begin, and that is not tried again.
type Refusal struct{ Reason string }

// Error implements error.
func (r *Refusal) Error() string { return r.Reason }

// Plan returns the Mover of a migration, which continues if its status has an origin.
func (d *Destination) Plan(ctx context.Context, obj *migrationv1alpha1.LogicalClusterMigration) (*Mover, error) {
	m := Migration{
		Name: obj.Name, UID: obj.UID, Cluster: logicalcluster.Name(obj.Spec.LogicalCluster), Destination: d.Shard,
		Origin: obj.Status.OriginShard, Epoch: uint64(obj.Status.Epoch),
	}
	lc, err := d.find(ctx, &m)
	if err != nil {
		return nil, err
	}
	records := placed{d.Parents, m, lc}
	if obj.Status.OriginShard == "" {
		record, err := records.Record(ctx, m.Cluster)
		if err != nil {
			return nil, err
		}
		if record.Shard != m.Origin {
			return nil, fmt.Errorf("shard %q has logical cluster %s, but its Workspace names shard %q", m.Origin, m.Cluster, record.Shard)
		}
		m.Epoch = record.Epoch + 1
		records.migration = m
	}
	return &Mover{
		Migration: m, Store: d.Store, Copies: d.Copies, Origin: Peer{d.Clients, m.Origin}, Records: records, Clock: d.Clock, Arrive: d.Arrive,
	}, nil
}

// find returns the LogicalCluster of a migration, and sets its origin. After the commit, it is that of this shard.
func (d *Destination) find(ctx context.Context, m *Migration) (*corev1alpha1.LogicalCluster, error) {
	own, err := d.own(ctx, *m)
	if err != nil || own != nil {
		return own, err
	}
	candidates := d.Shards()
	if m.Origin != "" {
		candidates = []string{m.Origin}
	}
	var silent []error
	for _, shard := range candidates {
		if shard == d.Shard {
			continue
		}
		found, err := peers.Call[Preparation, Prepared](ctx, d.Clients, shard, callPrepare, Preparation{Migration: *m, Version: d.Version})
		switch {
		case err != nil:
			silent = append(silent, fmt.Errorf("shard %q: %w", shard, err))
		case found.Refused != "":
			return nil, &Refusal{found.Refused}
		case found.LogicalCluster != nil:
			m.Origin = shard
			return found.LogicalCluster, nil
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("finding the shard of logical cluster %q: %w", m.Cluster, errors.Join(silent...))
	}
	return nil, &Refusal{fmt.Sprintf("no shard holds logical cluster %q. Mounts have none, and do not move", m.Cluster)}
}

// own returns the LogicalCluster of this shard for a migration that has begun; nil if there is none.
func (d *Destination) own(ctx context.Context, m Migration) (*corev1alpha1.LogicalCluster, error) {
	fence, _, err := d.Store.Fence(ctx, m.Cluster)
	if err != nil {
		return nil, err
	}
	lc, err := logicalClusterOf(ctx, d.Copies, m.Cluster)
	if err != nil || lc == nil {
		return nil, err
	}
	switch {
	case m.Origin != "":
		return lc, nil
	case fence == nil:
		return nil, &Refusal{fmt.Sprintf("logical cluster %q is on shard %q already", m.Cluster, d.Shard)}
	case fence.State != storage.FenceMoved:
		return nil, &Refusal{fmt.Sprintf("logical cluster %q is in another migration", m.Cluster)}
	}
	return nil, nil
}

// IsWaiting reports whether an error ends when another shard responds, or the cluster is not fenced.
func IsWaiting(err error) bool {
	return peers.IsUnreachable(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
}

// PhaseOf returns the phase in which a step is.
func PhaseOf(step Step) migrationv1alpha1.LogicalClusterMigrationPhase {
	switch step {
	case StepSettle, StepPublish:
		return migrationv1alpha1.PhaseDestinationFinalize
	case StepWithdraw, StepForward, StepClean:
		return migrationv1alpha1.PhaseOriginCleanup
	case StepDone:
		return migrationv1alpha1.PhaseCompleted
	case StepCanceled, StepRefused:
		return migrationv1alpha1.PhaseFailed
	case "":
		return migrationv1alpha1.PhasePreparing
	default: // the origin holds the cluster
		return migrationv1alpha1.PhaseMigrating
	}
}
