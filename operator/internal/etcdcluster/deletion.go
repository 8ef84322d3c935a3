package etcdcluster

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// lastSnapshot is the finalizer of EtcdClusters whose volumes are deleted after a last snapshot. Other EtcdClusters have no finalizer.
const lastSnapshot = "operator.kcp.io/last-snapshot"

// setFinalizer adds the finalizer if it is needed, and removes it otherwise.
func (s *scope) setFinalizer(ctx context.Context, requested bool) error {
	if controllerutil.ContainsFinalizer(s.cluster, lastSnapshot) == requested {
		return nil
	}
	before := s.cluster.DeepCopy()
	if requested {
		controllerutil.AddFinalizer(s.cluster, lastSnapshot)
	} else {
		controllerutil.RemoveFinalizer(s.cluster, lastSnapshot)
	}
	held := s.cluster.DeepCopy() // the response has the stored status, not the one in memory
	if err := s.Patch(ctx, held, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	s.cluster.ResourceVersion = held.ResourceVersion
	return nil
}

// delete finalizes a deleted cluster. The garbage collector deletes its objects.
func (s *scope) delete(ctx context.Context, before *v1alpha1.EtcdCluster) (ctrl.Result, error) {
	s.cluster.Status.Phase = v1alpha1.PhaseDeleting
	if !controllerutil.ContainsFinalizer(s.cluster, lastSnapshot) {
		return ctrl.Result{}, s.save(ctx, before)
	}
	err := s.finalize(ctx)
	if err == nil || apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	}
	waiting := conditions.Cause(err)
	if err := s.readTrust(ctx); err == nil { // snapshots are taken from members that are ready in the status
		observed, err := s.observe(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		s.reportObservation(observed)
		s.reportMembers(observed)
		s.reportHealth(observed, wait(waiting.Reason, "%s", waiting.Message))
	}
	s.set(v1alpha1.ConditionReady, false, waiting.Reason, waiting.Message)
	s.set(v1alpha1.ConditionReconciling, !waiting.Stalled, waiting.Reason, waiting.Message)
	s.set(v1alpha1.ConditionStalled, waiting.Stalled, waiting.Reason, waiting.Message)
	return ctrl.Result{RequeueAfter: whileWaiting}, s.save(ctx, before)
}

// readTrust reads the Secrets for connections to members, and creates none.
func (s *scope) readTrust(ctx context.Context) error {
	held, err := s.readKeys(ctx, TrustSecretName(s.cluster.Name), TrustedClients)
	if err != nil {
		return err
	}
	s.trusted = held.Data[TrustedClients]
	return s.readSecrets(ctx)
}

// finalize takes the last snapshot if it is requested, deletes the volumes, and removes the finalizer.
func (s *scope) finalize(ctx context.Context) error {
	if s.cluster.Spec.DeletionPolicy != v1alpha1.EtcdSnapshot || s.cluster.Status.ClusterID == "" {
		return s.setFinalizer(ctx, false)
	}
	err := s.takeLastSnapshot(ctx)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return s.releaseWithNamespace(ctx)
	} else if err != nil {
		return err
	}
	volumes := &corev1.PersistentVolumeClaimList{}
	if err := s.List(ctx, volumes, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(labels(s.cluster))); err != nil {
		return err
	}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if err := client.IgnoreNotFound(s.Delete(ctx, volume, client.Preconditions{UID: &volume.UID})); err != nil {
			return err
		}
	}
	return s.setFinalizer(ctx, false)
}

// releaseWithNamespace removes the finalizer if the namespace is being deleted, volumes included: no Job and no event can be created in it.
// The event is about the Namespace, and is stored in the namespace default.
func (s *scope) releaseWithNamespace(ctx context.Context) error {
	if err := s.setFinalizer(ctx, false); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.cluster.Namespace}}
	s.Recorder.Eventf(namespace, nil, corev1.EventTypeWarning, "NoLastSnapshot", "Delete",
		"EtcdCluster %s is deleted without the last snapshot of its "+
			"deletionPolicy: snapshots cannot be taken in a namespace that is being deleted", s.cluster.Name)
	return nil
}

// takeLastSnapshot returns no error when the snapshot is stored. Its EtcdBackup outlives the cluster, and has its key in the status.
func (s *scope) takeLastSnapshot(ctx context.Context) error {
	backup := &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.cluster.Namespace, Labels: map[string]string{apply.ManagedByLabel: apply.FieldOwner},
			Name: s.cluster.Name + "-" + strconv.FormatInt(s.cluster.DeletionTimestamp.Unix(), 36)},
		Spec: v1alpha1.EtcdBackupSpec{Cluster: s.cluster.Name, Store: *s.cluster.Spec.LastSnapshot},
	}
	err := s.Get(ctx, client.ObjectKeyFromObject(backup), backup)
	if apierrors.IsNotFound(err) {
		err = s.Create(ctx, backup)
	}
	if err != nil {
		return err
	}
	why := ""
	if ready := apimeta.FindStatusCondition(backup.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		why = ": " + ready.Message
	}
	switch {
	case backup.Status.Snapshot != nil:
		return nil
	case backup.Status.CompletedAt != nil:
		return conditions.Stall("SnapshotFailed",
			"EtcdBackup %s, the last snapshot, failed%s. Delete it to try again, or set spec.deletionPolicy to "+
				"Retain to keep the volumes instead", backup.Name, why)
	}
	return conditions.Wait("TakingLastSnapshot",
		"waiting for EtcdBackup %s, the last snapshot, before the volumes are deleted%s", backup.Name, why)
}
