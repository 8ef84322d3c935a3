// Package logicalclustermigration moves logical clusters to this shard, as the LogicalClusterMigrations in root say. Its keys are those
// objects, which every shard reads. What was copied is in memory; everything else is read again after a crash.
package logicalclustermigration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/migration"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// running limits the migrations to this shard at a time. Others wait for their turn.
	running = 4
	// retryInterval is the time before a failed step is tried again: short, because the cluster may be fenced.
	retryInterval = 500 * time.Millisecond
	// callTimeout limits a report, stepTimeout a step, and finishTimeout the step that copies the rest. A copy takes as long as there are
	// objects.
	callTimeout   = 10 * time.Second
	stepTimeout   = 30 * time.Second
	finishTimeout = 5 * time.Minute
	// fenceLimit is how long a logical cluster may be behind its fence until a failure to copy the rest ends the migration.
	fenceLimit = finishTimeout
	// reportInterval is the time between two reports of what was copied.
	reportInterval = time.Second
)

// Inputs of the controller.
type Inputs struct {
	Set *informers.Set
	// ShardName is the name of this shard.
	ShardName   string
	Destination *migration.Destination
	// Report sends a report to root, and returns the object.
	Report func(context.Context, migration.Report) (*migrationv1alpha1.LogicalClusterMigration, error)
	Clock  clock.Clock
}

type reconciler struct {
	Inputs
	controller *runner.Controller

	mu     sync.Mutex
	moving map[string]*run // by the name of the object
}

// run is one migration in this process.
type run struct {
	object *migrationv1alpha1.LogicalClusterMigration
	status migrationv1alpha1.LogicalClusterMigrationStatus
	mover  *migration.Mover
	// refused is why the migration does not go on.
	refused  string
	reported time.Time
	// canceled reports whether root has said that the object is deleted.
	canceled bool
	// finishing is since when the rest is copied behind the fence, failed why the migration gives up.
	finishing time.Time
	failed    string
}

// New returns the controller.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, moving: map[string]*run{}}
	r.controller = runner.New("logicalclustermigration", running, r.reconcile)
	in.Set.LogicalClusterMigrations.AddHandlerForAll(func(_, obj runtime.Object) {
		if obj == nil {
			return
		}
		m := obj.(*migrationv1alpha1.LogicalClusterMigration)
		if logicalcluster.Of(m) == logicalcluster.Root && r.isOurs(m) {
			r.controller.Enqueue(informers.Key{Cluster: logicalcluster.Root, Name: m.Name})
		}
	})
	return r.controller
}

// isOurs reports whether this shard acts for a migration: its destination or, if there is no such shard, the root shard.
func (r *reconciler) isOurs(m *migrationv1alpha1.LogicalClusterMigration) bool {
	if m.Spec.DestinationShard == r.ShardName {
		return true
	}
	_, err := r.Set.Shards.Get(logicalcluster.Root, "", m.Spec.DestinationShard)
	return r.ShardName == peers.Root && apierrors.IsNotFound(err)
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	known, err := r.Set.LogicalClusterMigrations.Get(key.Cluster, "", key.Name)
	if err != nil || !r.isOurs(known) {
		r.forget(key.Name)
		return runner.IgnoreNotFound(err)
	}
	if known.Status.Phase.IsFinal() && known.DeletionTimestamp == nil {
		r.forget(key.Name)
		return nil
	}
	current, err := r.runOf(ctx, known)
	if err != nil || current == nil {
		return runner.IgnoreNotFound(err)
	}
	if err := r.drive(ctx, current); err != nil {
		if ctx.Err() == nil {
			r.controller.EnqueueAfter(key, retryInterval)
		}
		return nil // the object says why
	}
	r.forget(key.Name)
	return nil
}

func (r *reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.moving, name)
}

// runOf returns the run of a migration, and nil if it has ended. A new run begins with the object as root has it now.
func (r *reconciler) runOf(ctx context.Context, known *migrationv1alpha1.LogicalClusterMigration) (*run, error) {
	r.mu.Lock()
	found := r.moving[known.Name]
	r.mu.Unlock()
	if found != nil && found.object.UID == known.UID {
		return found, nil
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	live, err := r.Report(limited, migration.Report{Name: known.Name, UID: known.UID})
	if err != nil || live.Status.Phase.IsFinal() {
		return nil, err
	}
	found = &run{object: live, status: live.Status, canceled: live.DeletionTimestamp != nil}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moving[known.Name] = found
	return found, nil
}

// drive executes the steps of a migration. An error has been reported; the migration continues later.
func (r *reconciler) drive(ctx context.Context, m *run) error {
	if m.status.Phase.IsFinal() { // only its report is missing
		return runner.IgnoreNotFound(r.report(ctx, m))
	}
	err := r.proceed(ctx, m)
	var refusal *migration.Refusal
	switch {
	case errors.As(err, &refusal):
		return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonRefused, refusal.Reason)
	case err == nil || ctx.Err() != nil:
		return err
	}
	decisionlog.ForFailure(ctx, logicalcluster.Name(m.object.Spec.LogicalCluster)).Info("A step of a migration failed, will try again",
		decisionlog.Name, m.object.Name, decisionlog.Reason, err)
	if m.status.Phase.IsFinal() {
		return err
	}
	m.set(migrationv1alpha1.Completed, metav1.ConditionFalse, migrationv1alpha1.ReasonStepFailed, err.Error()+". The migration tries again")
	return errors.Join(err, r.report(ctx, m))
}

func (r *reconciler) proceed(ctx context.Context, m *run) error {
	if m.mover == nil {
		if ended, err := r.begin(ctx, m); ended || err != nil {
			return err
		}
	}
	for {
		step, observed, err := r.next(ctx, m)
		if err != nil {
			return err
		}
		switch step {
		case migration.StepDone:
			return r.complete(ctx, m)
		case migration.StepCanceled:
			return r.endCanceled(ctx, m, observed)
		case migration.StepRefused:
			m.refused = "the logical cluster is in another migration"
		default:
			if err := r.do(ctx, m, step, observed); err != nil {
				return err
			}
		}
	}
}

func (r *reconciler) next(ctx context.Context, m *run) (migration.Step, migration.Observed, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.mover.Next(limited)
}

// do executes a step, and reports the phase before it.
func (r *reconciler) do(ctx context.Context, m *run, step migration.Step, observed migration.Observed) error {
	if phase := migration.PhaseOf(step); phase != m.status.Phase {
		m.status.Phase = phase
		m.recovered()
		if step != migration.StepSettle && step != migration.StepPublish { // nothing delays the service
			if err := r.report(ctx, m); err != nil && step == migration.StepGate {
				return err
			}
		}
	}
	if step != migration.StepCopy {
		limit := stepTimeout
		if step == migration.StepFinish {
			limit = finishTimeout
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	if step == migration.StepFinish && m.finishing.IsZero() {
		m.finishing = r.Clock.Now()
	}
	err := m.mover.Do(ctx, step, observed)
	m.observe(step, err)
	if err == nil {
		m.recovered()
	}
	if step == migration.StepFinish && err != nil && r.Clock.Since(m.finishing) >= fenceLimit {
		m.failed = fmt.Sprintf("The migration has ended, because the rest could not be copied within %s while the logical cluster was not "+
			"served: %v", fenceLimit, err)
	}
	return err
}

// begin finds the origin, and plans the migration. ended reports that it was canceled before.
func (r *reconciler) begin(ctx context.Context, m *run) (ended bool, err error) {
	if m.canceled && m.status.OriginShard == "" {
		return true, r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonCanceled, "The migration was canceled before it began")
	}
	if m.object.Spec.DestinationShard != r.ShardName {
		return false, &migration.Refusal{Reason: fmt.Sprintf("there is no shard %q", m.object.Spec.DestinationShard)}
	}
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	mover, err := r.Destination.Plan(limited, m.object)
	if err != nil {
		return false, err
	}
	mover.Canceled = func() bool { return m.refused != "" || m.failed != "" || m.canceled }
	mover.Copied = func(entries []storage.Entry) { r.count(ctx, m, entries) }
	m.status.OriginShard, m.status.Epoch = mover.Migration.Origin, int64(mover.Migration.Epoch)
	m.set(migrationv1alpha1.OriginReady, metav1.ConditionTrue, "Accepted", "")
	m.recovered()
	if err := r.report(ctx, m); err != nil { // the plan must be stored before anything happens. It may be: the next run reads it
		r.forget(m.object.Name)
		return false, err
	}
	m.mover = mover
	return false, nil
}

// count counts what was copied, and reports it from time to time.
func (r *reconciler) count(ctx context.Context, m *run, entries []storage.Entry) {
	for _, entry := range entries {
		m.status.EntriesCopied++
		m.status.BytesCopied += int64(len(entry.Key) + len(entry.Value))
	}
	if r.Clock.Since(m.reported) > reportInterval && m.mover != nil && m.status.Phase == migrationv1alpha1.PhaseMigrating {
		_ = r.report(ctx, m) // the next one has more
	}
}

// report sends the status to root.
func (r *reconciler) report(ctx context.Context, m *run) error {
	m.reported = r.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	live, err := r.Report(limited, migration.Report{Name: m.object.Name, UID: m.object.UID, Status: m.status.DeepCopy()})
	if err != nil {
		return fmt.Errorf("reporting to the root shard: %w", err)
	}
	m.canceled = live.DeletionTimestamp != nil
	return nil
}

func (r *reconciler) complete(ctx context.Context, m *run) error {
	m.set(migrationv1alpha1.OriginCleaned, metav1.ConditionTrue, "Cleaned", "")
	m.status.Phase = migrationv1alpha1.PhaseCompleted
	m.set(migrationv1alpha1.Completed, metav1.ConditionTrue, "Completed", "")
	return runner.IgnoreNotFound(r.report(ctx, m))
}

func (r *reconciler) endCanceled(ctx context.Context, m *run, o migration.Observed) error {
	switch {
	case m.refused != "":
		return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating, m.refused)
	case o.Gone:
		return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonFailed, "The workspace was deleted")
	case m.failed != "":
		return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonFailed, m.failed)
	case m.canceled:
		return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonCanceled,
			fmt.Sprintf("The migration was canceled; shard %q holds the logical cluster", o.Record.Shard))
	}
	return r.end(ctx, m, migrationv1alpha1.PhaseFailed, migrationv1alpha1.ReasonFailed,
		fmt.Sprintf("shard %q holds the logical cluster at epoch %d: another migration was faster", o.Record.Shard, o.Record.Epoch))
}

// end reports that a migration has ended without moving anything.
func (r *reconciler) end(ctx context.Context, m *run, phase migrationv1alpha1.LogicalClusterMigrationPhase, reason, message string) error {
	m.status.Phase = phase
	if reason == migrationv1alpha1.ReasonRefused || reason == migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating {
		m.set(migrationv1alpha1.OriginReady, metav1.ConditionFalse, reason, message)
		reason = migrationv1alpha1.ReasonFailed
	}
	m.set(migrationv1alpha1.Completed, metav1.ConditionFalse, reason, message)
	return runner.IgnoreNotFound(r.report(ctx, m))
}

// recovered removes the condition about a step that has failed, and was executed since.
func (m *run) recovered() {
	m.status.Conditions = slices.DeleteFunc(m.status.Conditions, func(c corev1alpha1.Condition) bool {
		return c.Type == migrationv1alpha1.Completed && c.Reason == migrationv1alpha1.ReasonStepFailed
	})
}

// observe sets the conditions after a step.
func (m *run) observe(step migration.Step, err error) {
	switch {
	case step == migration.StepFinish && err == nil:
		m.set(migrationv1alpha1.DataCopied, metav1.ConditionTrue, "Copied", "")
	case (step == migration.StepCopy || step == migration.StepFinish) && err != nil:
		m.set(migrationv1alpha1.DataCopied, metav1.ConditionFalse, migrationv1alpha1.ReasonCopyFailed, err.Error())
	case step == migration.StepClean && err != nil:
		m.set(migrationv1alpha1.OriginCleaned, metav1.ConditionFalse, migrationv1alpha1.ReasonCleanupFailed, err.Error())
	}
}

func (m *run) set(kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(&m.status.Conditions, corev1alpha1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}
