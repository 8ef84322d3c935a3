package kubeconfig

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/access"
	"github.com/kcplane/kcp/operator/apply"
	"github.com/kcplane/kcp/operator/certmanager"
	"github.com/kcplane/kcp/operator/shard"
)

// delete ends the access: it unbinds the roles, and deletes the certificate with its key. A kcp that does not answer is waited
// for, but not for ever: when it comes back the certificate that is out there has roles until it expires, which an event tells.
func (s *scope) delete(ctx context.Context) (ctrl.Result, error) {
	k := s.kubeconfig
	if !controllerutil.ContainsFinalizer(k, finalizer) {
		return ctrl.Result{}, nil
	}
	if err := s.unbind(ctx); err != nil {
		if waited := s.Now().Sub(k.DeletionTimestamp.Time); waited < patience {
			return ctrl.Result{RequeueAfter: min(again, patience-waited+time.Second)}, nil
		}
		s.Recorder.Eventf(k, nil, corev1.EventTypeWarning, "RolesLeft", "Delete",
			"roles are left in the workspace %s, until the certificate expires: %v", k.Status.Authorization.ProvisionedCluster, err)
	}
	name := metav1.ObjectMeta{Namespace: k.Namespace, Name: certificateName(k)}
	if err := apply.Remove(ctx, s.Client, k, &certmanager.Certificate{ObjectMeta: name}); err != nil {
		return ctrl.Result{}, err
	}
	if err := s.deleteKey(ctx, name.Name); err != nil {
		return ctrl.Result{}, err
	}
	before := k.DeepCopy()
	controllerutil.RemoveFinalizer(k, finalizer)
	err := s.Patch(ctx, k, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// deleteKey deletes the Secret that cert-manager has written, which nobody else would.
func (s *scope) deleteKey(ctx context.Context, name string) error {
	secret := &corev1.Secret{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.kubeconfig.Namespace, Name: name}, secret)
	if err != nil || secret.Labels[ownerLabel] != string(s.kubeconfig.UID) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(s.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}))
}

// unbind removes the roles, unless there is no kcp any more that has them: because it is deleted, too, together with the
// namespace for one.
func (s *scope) unbind(ctx context.Context) error {
	authorization := s.kubeconfig.Status.Authorization
	if authorization == nil || authorization.ProvisionedCluster == "" {
		return nil
	}
	rs := &v1alpha1.RootShard{}
	if s.kubeconfig.Spec.Target.RootShardRef == nil {
		return nil
	}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.kubeconfig.Namespace, Name: s.kubeconfig.Spec.Target.RootShardRef.Name}, rs)
	if err != nil || !rs.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	s.root = shard.Root(rs)
	credentials, err := s.credentials(ctx)
	if err != nil {
		return err
	}
	return s.Bind(ctx, credentials, authorization.ProvisionedCluster, access.Roles{ID: string(s.kubeconfig.UID)})
}
