// Package serviceaccounttoken fills Secrets of type kubernetes.io/service-account-token, and deletes those whose service account does not
// exist.
package serviceaccounttoken

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// Inputs of the controller. The client reaches the cluster in each call's context.
type Inputs struct {
	Set  *informers.Set
	Kube kubernetes.Interface
	// Tokens signs tokens of the cluster of its context.
	Tokens serviceaccount.TokenGenerator
	// CA is in PEM.
	CA []byte
}

type reconciler struct {
	Inputs
	secrets *informers.Index // by the key of the service account
}

// New returns the controller. Its keys are Secrets.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, secrets: in.Set.Secrets.NewIndex(accountOf)}
	c := runner.New("serviceaccounttoken", 4, r.reconcile)
	c.WatchMapped(in.Set.Secrets.Informer, func(obj runtime.Object) []informers.Key {
		if obj.(*corev1.Secret).Type != corev1.SecretTypeServiceAccountToken {
			return nil
		}
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		return []informers.Key{key}
	})
	c.WatchMapped(in.Set.ServiceAccounts.Informer, func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		return r.secrets.Find(key.String())
	})
	return c
}

// accountOf returns the key of the service account of a token Secret, and nothing for another Secret.
func accountOf(obj runtime.Object) []string {
	secret := obj.(*corev1.Secret)
	key, err := informers.KeyOf(secret)
	if err != nil || secret.Type != corev1.SecretTypeServiceAccountToken {
		return nil
	}
	key.Name = secret.Annotations[corev1.ServiceAccountNameKey]
	return []string{key.String()}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	known, err := r.Set.Secrets.Get(key.Cluster, key.Namespace, key.Name)
	if err != nil || known.DeletionTimestamp != nil || known.Type != corev1.SecretTypeServiceAccountToken {
		return runner.IgnoreNotFound(err)
	}
	account, err := r.Kube.CoreV1().ServiceAccounts(key.Namespace).Get(ctx,
		known.Annotations[corev1.ServiceAccountNameKey], metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if uid := known.Annotations[corev1.ServiceAccountUIDKey]; err != nil || (uid != "" && uid != string(account.UID)) {
		preconditions := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &known.UID}}
		err := r.Kube.CoreV1().Secrets(key.Namespace).Delete(ctx, key.Name, preconditions)
		if apierrors.IsConflict(err) {
			return nil
		}
		return runner.IgnoreExistsOrTerminating(err)
	}
	secret, err := r.Kube.CoreV1().Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || secret.ResourceVersion != known.ResourceVersion { // the event of a later version follows
		return runner.IgnoreNotFound(err)
	}
	return r.fill(ctx, account, secret)
}

// fill writes token, CA and namespace into a stored Secret that lacks any of them.
func (r *reconciler) fill(ctx context.Context, account *corev1.ServiceAccount, filled *corev1.Secret) error {
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	complete := filled.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID) &&
		len(filled.Data[corev1.ServiceAccountTokenKey]) > 0 &&
		string(filled.Data[corev1.ServiceAccountRootCAKey]) == string(r.CA) &&
		string(filled.Data[corev1.ServiceAccountNamespaceKey]) == filled.Namespace
	if complete {
		return nil
	}
	filled.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	filled.Data[corev1.ServiceAccountRootCAKey] = r.CA
	filled.Data[corev1.ServiceAccountNamespaceKey] = []byte(filled.Namespace)
	if len(filled.Data[corev1.ServiceAccountTokenKey]) == 0 {
		claims, private := serviceaccount.LegacyClaims(*account, *filled)
		token, err := r.Tokens.GenerateToken(ctx, claims, private)
		if err != nil {
			return err
		}
		filled.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	_, err := r.Kube.CoreV1().Secrets(filled.Namespace).Update(ctx, filled, metav1.UpdateOptions{})
	return runner.IgnoreExistsOrTerminating(err)
}
