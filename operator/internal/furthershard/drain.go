package furthershard

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/drain"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
)

// Moves has the logical clusters of shards, and moves them. It is kcpaccess.Registry.
type Moves interface {
	Shards(ctx context.Context, credentials kcpaccess.Credentials) ([]corev1alpha1.Shard, error)
	Holdings(ctx context.Context, credentials kcpaccess.Credentials, name, after string) (corev1alpha1.ShardLogicalClusters, error)
	Migrations(ctx context.Context, credentials kcpaccess.Credentials) ([]migrationv1alpha1.LogicalClusterMigration, error)
	Move(ctx context.Context, credentials kcpaccess.Credentials, name string, labels map[string]string, cluster, destination string) error
	Cancel(ctx context.Context, credentials kcpaccess.Credentials, name string) error
}

// drainInterval is the time between two decisions while logical clusters move.
const drainInterval = 3 * time.Second

// drain moves the logical clusters of a shard with spec.drain to other shards, and reports the progress. Without spec.drain, it cancels the
// moves that it has begun.
func (s *scope) drain(ctx context.Context, moves Moves, credentials kcpaccess.Credentials) {
	status := &s.object.Status
	if !s.object.Spec.Drain {
		if status.Drain == nil && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDrained) == nil {
			return
		}
		if err := s.stopDraining(ctx, moves, credentials); err != nil {
			s.setDrained(metav1.ConditionFalse, "StopFailed", "canceling moves to other shards: "+err.Error())
			return
		}
		status.Drain = nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionDrained)
		return
	}
	plan, err := s.plan(ctx, moves, credentials)
	if err != nil {
		reason, message := "RootShardUnreachable", "reading what the shard holds: "+err.Error()
		if apierrors.IsNotFound(err) {
			reason = "Unsupported"
			message = "the version of the root shard or of this one does not list logical clusters: upgrade, or move them with " +
				"kubectl kcp move: " + err.Error()
		}
		s.setDrained(metav1.ConditionFalse, reason, message)
		return
	}
	d := plan.Decision()
	if err := s.move(ctx, moves, credentials, d); err != nil {
		d.Condition.Message += "; " + err.Error()
	}
	status.Drain = &d.Status
	s.setDrained(d.Condition.Status, d.Condition.Reason, d.Condition.Message)
	if d.Condition.Reason == drain.ReasonMoving {
		s.After = conditions.Earliest(s.After, drainInterval)
	}
}

func (s *scope) setDrained(status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.object.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDrained, Status: status, Reason: reason,
		ObservedGeneration: s.object.Generation, Message: message})
}

// plan reads what the shard holds, until it is decided what happens next.
func (s *scope) plan(ctx context.Context, moves Moves, credentials kcpaccess.Credentials) (*drain.Plan, error) {
	in := drain.Snapshot{Shard: s.object.Name, Now: time.Now()}
	var err error
	if in.Shards, err = moves.Shards(ctx, credentials); err != nil {
		return nil, err
	}
	if in.Migrations, err = moves.Migrations(ctx, credentials); err != nil {
		return nil, err
	}
	plan := drain.NewPlan(in, s.object.Status.Drain)
	for after := ""; ; {
		page, err := moves.Holdings(ctx, credentials, s.object.Name, after)
		if err != nil {
			return nil, err
		}
		plan.Add(page.Items, page.Total)
		if after = page.Continue; after == "" || plan.Enough() {
			return plan, nil
		}
	}
}

// move executes a decision.
func (s *scope) move(ctx context.Context, moves Moves, credentials kcpaccess.Credentials, d drain.Decision) error {
	var errs []error
	for _, name := range d.Forget {
		errs = append(errs, moves.Cancel(ctx, credentials, name))
	}
	name := s.object.Name
	for _, m := range d.Begin {
		errs = append(errs, moves.Move(ctx, credentials, drain.Name(name, m.Cluster), map[string]string{drain.Label: name}, m.Cluster,
			m.Destination))
	}
	return errors.Join(errs...)
}

// stopDraining deletes the migrations of the shard that the operator has created. kcp cancels those that are not committed.
func (s *scope) stopDraining(ctx context.Context, moves Moves, credentials kcpaccess.Credentials) error {
	all, err := moves.Migrations(ctx, credentials)
	if err != nil {
		return err
	}
	var errs []error
	for i := range all {
		if all[i].Labels[drain.Label] == s.object.Name {
			errs = append(errs, moves.Cancel(ctx, credentials, all[i].Name))
		}
	}
	return errors.Join(errs...)
}
