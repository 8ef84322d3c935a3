package kubeconfig

import (
	"context"
	"strings"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Revoker revokes the access of deleted Kubeconfigs: it unbinds their roles, and deletes their keys. Kubeconfigs have no finalizer for
// this, because they and their namespace would never be deleted if kcp or the operator is removed first. Instead, the Revoker uses the
// remaining Secrets with the UID of the Kubeconfig, one of which records where roles are bound.
type Revoker struct {
	client.Client
	// Live bypasses the caches, which may be outdated.
	Live     client.Reader
	Recorder events.EventRecorder
	// Bind is kcpaccess.Bind.
	Bind Binder
}

// Reconcile deletes the objects of a deleted Kubeconfig, whose UID is the name in the request. If kcp does not answer, it retries until kcp
// answers or is deleted.
func (r *Revoker) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if alive, err := r.alive(ctx, request.Namespace, types.UID(request.Name)); alive || err != nil {
		return ctrl.Result{}, err
	}
	left := client.MatchingLabels{ownerLabel: request.Name}
	certificates := &certmanager.CertificateList{}
	if err := r.List(ctx, certificates, client.InNamespace(request.Namespace), left); err != nil {
		return ctrl.Result{}, err
	}
	for i := range certificates.Items { // first, because otherwise cert-manager would issue the Secrets again
		if err := client.IgnoreNotFound(r.Delete(ctx, &certificates.Items[i])); err != nil {
			return ctrl.Result{}, err
		}
	}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.List(ctx, secrets, client.InNamespace(request.Namespace), left); err != nil {
		return ctrl.Result{}, err
	}
	var retry time.Duration
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		if !strings.HasPrefix(secret.Name, certificatePrefix) && secret.Name != recordPrefix+request.Name {
			continue // deleted by the garbage collector, or a copy by a user
		}
		if !r.unbound(ctx, request.Name, secret) {
			retry = again
			continue
		}
		same := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
		if err := client.IgnoreNotFound(r.Delete(ctx, secret, same)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: retry}, nil
}

// alive reports whether a Kubeconfig exists. If the cache does not have it, alive asks the API server.
func (r *Revoker) alive(ctx context.Context, namespace string, uid types.UID) (bool, error) {
	for _, reader := range []client.Reader{r.Client, r.Live} {
		list := &v1alpha1.KubeconfigList{}
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for i := range list.Items {
			if list.Items[i].UID == uid {
				return true, nil
			}
		}
	}
	return false, nil
}

// unbound unbinds the roles that a Secret records, if any, and reports whether none remain. None remain either if the kcp or the workspace
// no longer exists. If roles remain, it records an event of the RootShard.
func (r *Revoker) unbound(ctx context.Context, uid string, secret *metav1.PartialObjectMetadata) bool {
	workspace := secret.Annotations[workspaceAnnotation]
	if workspace == "" {
		return true
	}
	rs := &v1alpha1.RootShard{}
	err := r.Get(ctx, client.ObjectKey{Namespace: secret.Namespace, Name: secret.Labels[shard.RootLabel]}, rs)
	if apierrors.IsNotFound(err) || err == nil && !rs.DeletionTimestamp.IsZero() {
		return true
	}
	if err == nil {
		err = r.unbind(ctx, rs, workspace, uid)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		r.Recorder.Eventf(rs, nil, corev1.EventTypeWarning, "RolesRemain", "Revoke",
			"the roles of a deleted Kubeconfig in workspace %s are not unbound yet, retrying: %.800v", workspace, err)
		return false
	}
	return true
}

func (r *Revoker) unbind(ctx context.Context, rs *v1alpha1.RootShard, workspace, uid string) error {
	credentials, err := installation.Credentials(ctx, r.Client, shard.Root(rs))
	if err != nil {
		return err
	}
	return r.Bind(ctx, credentials, workspace, kcpaccess.Roles{ID: uid})
}
