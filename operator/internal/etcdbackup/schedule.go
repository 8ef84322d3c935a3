package etcdbackup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/retention"
	"github.com/kcplane/kcp/operator/internal/retry"
)

const (
	defaultKeep   = 7
	scheduleLabel = "operator.kcp.io/schedule"
)

// ScheduleReconciler creates EtcdBackups for EtcdBackupSchedules.
type ScheduleReconciler struct {
	client.Client
	// Live reads without a cache: a cached status may be older than the one that the reconciler has written.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
}

// Setup registers the reconciler.
func (r *ScheduleReconciler) Setup(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("etcdbackupschedule").WithOptions(retry.Options()).
		For(&v1alpha1.EtcdBackupSchedule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&v1alpha1.EtcdBackup{}).
		Complete(r)
}

// Reconcile creates an EtcdBackup if one is due, and requeues the schedule for the next time.
func (r *ScheduleReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	schedule := &v1alpha1.EtcdBackupSchedule{}
	if err := r.Live.Get(ctx, request.NamespacedName, schedule); err != nil || !schedule.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := schedule.DeepCopy()
	report := conditions.NewReport(conditions.Rest)
	next, err := r.follow(ctx, schedule)
	report.Set(conditions.Rest, err)
	report.Write(&schedule.Status.Conditions, schedule.Generation)
	schedule.Status.ObservedGeneration = schedule.Generation
	if err := conditions.Save(ctx, r.Client, r.Recorder, before, schedule, before.Status.Conditions, schedule.Status.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, report.Err()
}

// follow creates and deletes EtcdBackups according to the schedule, and returns the time until the next one is due.
func (r *ScheduleReconciler) follow(ctx context.Context, schedule *v1alpha1.EtcdBackupSchedule) (time.Duration, error) {
	times, err := cron.ParseStandard("CRON_TZ=" + cmp.Or(schedule.Spec.TimeZone, "UTC") + " " + schedule.Spec.Schedule)
	if err != nil {
		return 0, conditions.Stall("InvalidSchedule", "spec.schedule or spec.timeZone: %s", err.Error())
	}
	backups, err := r.backups(ctx, schedule)
	if err != nil {
		return 0, err
	}
	last := lastOf(backups, schedule)
	if err := r.prune(ctx, backups, schedule); err != nil || schedule.Spec.Suspend {
		return 0, err
	}
	now, since := r.Now(), schedule.CreationTimestamp.Time
	if at := schedule.Status.LastScheduled; at != nil {
		since = at.Time
	}
	due := times.Next(since)
	if due.After(now) {
		return due.Sub(now), last
	}
	if deadline := schedule.Spec.StartingDeadlineSeconds; deadline != nil {
		due = lastBefore(times, due, now)
		if limit := time.Duration(*deadline) * time.Second; now.Sub(due) > limit {
			schedule.Status.LastScheduled = new(metav1.NewTime(due).Rfc3339Copy())
			return times.Next(now).Sub(now), conditions.Wait("DeadlinePassed", "the snapshot of %s could not be started within %s, and is skipped",
				due.UTC().Format(time.RFC3339), limit)
		}
	}
	if len(backups) > 0 && backups[len(backups)-1].Status.CompletedAt == nil {
		return whileWaiting, conditions.Wait("TakingSnapshot", "waiting for EtcdBackup %s to complete before the next one",
			backups[len(backups)-1].Name)
	}
	cluster := &v1alpha1.EtcdCluster{}
	err = r.Get(ctx, client.ObjectKey{Namespace: schedule.Namespace, Name: schedule.Spec.Cluster}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err != nil || source(cluster) == "" { // the EtcdBackup would only fail
		return whileWaiting, conditions.Wait("ClusterNotAvailable",
			"waiting for EtcdCluster %s: no member is ready for a snapshot", schedule.Spec.Cluster)
	}
	if err := r.create(ctx, schedule, now); err != nil {
		return 0, err
	}
	schedule.Status.LastScheduled = new(metav1.NewTime(now).Rfc3339Copy())
	return times.Next(now).Sub(now), last
}

// lastBefore returns the last time of a schedule up to now, starting at a known time.
func lastBefore(times cron.Schedule, known, now time.Time) time.Time {
	for next := times.Next(known); !next.After(now); next = times.Next(next) {
		known = next
	}
	return known
}

func keepLast(schedule *v1alpha1.EtcdBackupSchedule) int32 {
	return ptr.Deref(schedule.Spec.KeepLast, defaultKeep)
}

// backups returns the EtcdBackups of a schedule, the oldest first.
func (r *ScheduleReconciler) backups(ctx context.Context, schedule *v1alpha1.EtcdBackupSchedule) ([]v1alpha1.EtcdBackup, error) {
	list := &v1alpha1.EtcdBackupList{}
	if err := r.List(ctx, list, client.InNamespace(schedule.Namespace), client.MatchingLabels{scheduleLabel: schedule.Name}); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.EtcdBackup) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// lastOf sets the last success in the status, and returns an error if the last snapshot failed.
func lastOf(backups []v1alpha1.EtcdBackup, schedule *v1alpha1.EtcdBackupSchedule) error {
	var failure error
	for _, b := range backups {
		switch {
		case b.Status.CompletedAt == nil:
		case b.Status.Snapshot != nil:
			schedule.Status.LastSuccess, failure = b.Status.CompletedAt, nil
		default:
			failure = conditions.Wait("SnapshotFailed", "EtcdBackup %s failed: see its conditions", b.Name)
		}
	}
	return failure
}

// prune deletes the EtcdBackups whose snapshots are deleted, and all failed ones except for the last ones.
func (r *ScheduleReconciler) prune(ctx context.Context, backups []v1alpha1.EtcdBackup, schedule *v1alpha1.EtcdBackupSchedule) error {
	last := int(keepLast(schedule))
	keep := retention.Policy{Last: last, Daily: int(ptr.Deref(schedule.Spec.KeepDaily, 0)),
		Weekly: int(ptr.Deref(schedule.Spec.KeepWeekly, 0))}
	var times []time.Time
	var gone, stored []*v1alpha1.EtcdBackup
	for i := range backups {
		switch b := &backups[i]; {
		case b.Status.Snapshot != nil:
			at, _ := retention.TimeOf(b.Status.Snapshot.Key)
			times, stored = append(times, at), append(stored, b)
		case b.Status.CompletedAt != nil && i < len(backups)-last:
			gone = append(gone, b)
		}
	}
	for i, kept := range keep.Keeps(times) {
		if !kept {
			gone = append(gone, stored[i])
		}
	}
	for _, b := range gone {
		if err := client.IgnoreNotFound(r.Delete(ctx, b)); err != nil {
			return err
		}
	}
	return nil
}

// create creates an EtcdBackup. Its name includes the time, so that a restarted operator does not create a second one.
func (r *ScheduleReconciler) create(ctx context.Context, schedule *v1alpha1.EtcdBackupSchedule, now time.Time) error {
	backup := &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: schedule.Namespace, Name: fmt.Sprintf("%s-%d", schedule.Name, now.Unix()/60),
			Labels:          map[string]string{scheduleLabel: schedule.Name, apply.ManagedByLabel: apply.FieldOwner},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(schedule, v1alpha1.SchemeGroupVersion.WithKind("EtcdBackupSchedule"))},
		},
		Spec: v1alpha1.EtcdBackupSpec{Cluster: schedule.Spec.Cluster, Store: schedule.Spec.Store,
			KeepLast: new(keepLast(schedule)), KeepDaily: schedule.Spec.KeepDaily, KeepWeekly: schedule.Spec.KeepWeekly,
			IncludeSecrets: schedule.Spec.IncludeSecrets},
	}
	if err := r.Create(ctx, backup); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
