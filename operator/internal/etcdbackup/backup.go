// Package etcdbackup sees to it that there are snapshots of an etcd to go back to: one for each EtcdBackup, and one EtcdBackup
// for each time of an EtcdBackupSchedule. A Job takes them; the operator decides when, of which member, and tells what came of it.
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

// whileWaiting is how soon a cluster is looked at again that no snapshot can be taken of.
const whileWaiting = 10 * time.Second

// Reconciler of EtcdBackups.
type Reconciler struct {
	client.Client
	// Live reads what the caches do not hold, since it is not the operator's.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
	// Repository of images of etcd, and the version of clusters that name none.
	Repository, Version string
	// Pods is what the installation allows to them.
	Pods workload.Security
}

// Setup registers the reconciler.
func (r *Reconciler) Setup(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("etcdbackup").
		For(&v1alpha1.EtcdBackup{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&batchv1.Job{}).
		Complete(r)
}

// Reconcile takes the snapshot, once. What became of it is final.
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

// take goes a step towards the snapshot. No error means that it is stored.
func (r *Reconciler) take(ctx context.Context, backup *v1alpha1.EtcdBackup) error {
	cluster := &v1alpha1.EtcdCluster{}
	err := r.Get(ctx, client.ObjectKey{Namespace: backup.Namespace, Name: backup.Spec.Cluster}, cluster)
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ClusterNotFound", "spec.cluster: there is no EtcdCluster %s in this namespace", backup.Spec.Cluster)
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
		return conditions.Wait("ClusterNotAvailable", "waiting for EtcdCluster %s: no member can give a snapshot", cluster.Name)
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

// source returns the member to take a snapshot of: one that follows, so that the leader goes on undisturbed, if there is one.
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

// attribute tells whose data a snapshot has, if the cluster is that of a RootShard.
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

// rootShardOf returns the RootShard that a cluster is the etcd of, or nil.
func rootShardOf(cluster *v1alpha1.EtcdCluster) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(cluster); owner != nil && owner.Kind == "RootShard" {
		return owner
	}
	return nil
}
