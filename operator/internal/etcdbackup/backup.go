// Package etcdbackup takes snapshots of etcd clusters: one for each EtcdBackup, and one EtcdBackup for each time of an EtcdBackupSchedule.
// A Job takes the snapshot; the operator decides when and from which member, and reports the result.
package etcdbackup

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/retry"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackups,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackups/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackups/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackupschedules,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackupschedules/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackupschedules/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete

// whileWaiting is the interval of retries while a cluster cannot give a snapshot.
const whileWaiting = 10 * time.Second

// Reconciler reconciles EtcdBackups.
type Reconciler struct {
	client.Client
	// Live reads objects that are not in the caches, because they do not belong to the operator.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
	// Repository is the image repository of etcd, and Version the version of clusters without spec.version.
	Repository, Version string
	// Pods is what the installation allows pods to do.
	Pods workload.Security
}

// Setup registers the reconciler.
func (r *Reconciler) Setup(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("etcdbackup").WithOptions(retry.Options()).
		For(&v1alpha1.EtcdBackup{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&batchv1.Job{}).
		Complete(r)
}

// Reconcile takes the snapshot, once. Its result is final.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	backup := &v1alpha1.EtcdBackup{}
	if err := r.Live.Get(ctx, request.NamespacedName, backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !backup.DeletionTimestamp.IsZero() || backup.Status.CompletedAt != nil {
		return ctrl.Result{}, nil
	}
	before := backup.DeepCopy()
	report := conditions.NewReport(conditions.Rest)
	err := r.take(ctx, backup)
	report.Set(conditions.Rest, err)
	report.Write(&backup.Status.Conditions, backup.Generation)
	if report.Ready() {
		if err := r.reportSecrets(ctx, backup); err != nil {
			return ctrl.Result{}, err
		}
	}
	backup.Status.ObservedGeneration = backup.Generation
	switch {
	case report.Ready():
		backup.Status.Phase = v1alpha1.PhaseReady
	case backup.Status.CompletedAt != nil:
		backup.Status.Phase = v1alpha1.PhaseFailed
	default:
		backup.Status.Phase = v1alpha1.PhaseRunning
	}
	if err := conditions.Save(ctx, r.Client, r.Recorder, before, backup, before.Status.Conditions, backup.Status.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	if backup.Status.CompletedAt == nil && report.Err() == nil {
		return ctrl.Result{RequeueAfter: whileWaiting}, nil
	}
	return ctrl.Result{}, report.Err()
}

// take executes the next step of a snapshot. It returns no error when the snapshot is stored.
func (r *Reconciler) take(ctx context.Context, backup *v1alpha1.EtcdBackup) error {
	cluster := &v1alpha1.EtcdCluster{}
	err := r.Get(ctx, client.ObjectKey{Namespace: backup.Namespace, Name: backup.Spec.Cluster}, cluster)
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ClusterNotFound", "spec.cluster: EtcdCluster %s not found in this namespace", backup.Spec.Cluster)
	} else if err != nil {
		return err
	}
	job := etcdcluster.SaveJob(backup, cluster, "", "")
	err = r.Get(ctx, client.ObjectKeyFromObject(job), job)
	if apierrors.IsNotFound(err) {
		return r.begin(ctx, backup, cluster)
	} else if err != nil {
		return err
	}
	if !metav1.IsControlledBy(job, backup) {
		return &apply.TakenError{Kind: "Job", Name: job.Name}
	}
	return r.finish(ctx, backup, cluster, job)
}

func (r *Reconciler) begin(ctx context.Context, backup *v1alpha1.EtcdBackup, cluster *v1alpha1.EtcdCluster) error {
	member := source(cluster)
	if member == "" {
		return conditions.Wait("ClusterNotAvailable", "waiting for EtcdCluster %s: no member is ready for a snapshot", cluster.Name)
	}
	if err := etcdcluster.CheckStore(ctx, r.Live, backup.Namespace, "spec.store", &backup.Spec.Store); err != nil {
		return err
	}
	if err := r.includeSecrets(ctx, backup, cluster); err != nil {
		return err
	}
	job := etcdcluster.SaveJob(backup, cluster, member, etcdcluster.Image(cluster, r.Repository, r.Version))
	r.Pods.Assign(&job.Spec.Template.Spec)
	if err := apply.All(ctx, r.Client, backup, job); err != nil {
		return err
	}
	return conditions.Wait("TakingSnapshot", "Job %s takes a snapshot of member %s", job.Name, member)
}

// source returns the member from which to take a snapshot: preferably a follower, to keep load from the leader.
func source(cluster *v1alpha1.EtcdCluster) string {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionAvailable) {
		return ""
	}
	member := ""
	for _, m := range cluster.Status.Members {
		if m.Ready && !m.IsLearner && (member == "" || !m.IsLeader) {
			member = m.Name
		}
	}
	return member
}

func (r *Reconciler) finish(ctx context.Context, backup *v1alpha1.EtcdBackup, cluster *v1alpha1.EtcdCluster, job *batchv1.Job) error {
	done, failed := etcdcluster.JobState(job)
	if !done && !failed {
		trouble, err := etcdcluster.JobTrouble(ctx, r.Client, job, r.Now())
		return cmp.Or(err, trouble.Because("TakingSnapshot", "Job %s takes a snapshot", job.Name))
	}
	message, err := etcdcluster.JobMessage(ctx, r.Client, job)
	if err != nil {
		return err
	}
	taken := &v1alpha1.EtcdSnapshotStatus{}
	if err := json.Unmarshal([]byte(message), taken); failed || err != nil {
		backup.Status.CompletedAt = new(metav1.NewTime(r.Now()).Rfc3339Copy())
		return conditions.Stall("SnapshotFailed", "Job %s: %s", job.Name, message)
	}
	if err := r.attribute(ctx, taken, cluster); err != nil {
		return err
	}
	backup.Status.Snapshot, backup.Status.CompletedAt = taken, new(metav1.NewTime(r.Now()).Rfc3339Copy())
	return nil
}

// attribute adds the version and key prefix of kcp to a snapshot, if the cluster belongs to a RootShard.
func (r *Reconciler) attribute(ctx context.Context, taken *v1alpha1.EtcdSnapshotStatus, cluster *v1alpha1.EtcdCluster) error {
	owner := rootShardOf(cluster)
	if owner == nil {
		return nil
	}
	rs := &v1alpha1.RootShard{}
	err := r.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: owner.Name}, rs)
	if err == nil && rs.UID == owner.UID {
		taken.KCPVersion, taken.KeyPrefix = rs.Status.Version, rs.Spec.Etcd.Prefix
	}
	return client.IgnoreNotFound(err)
}

// rootShardOf returns the RootShard that owns a cluster, or nil.
func rootShardOf(cluster *v1alpha1.EtcdCluster) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(cluster); owner != nil && owner.Kind == "RootShard" {
		return owner
	}
	return nil
}
