package authentication

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Getter reads the objects that a service account token is bound to, in the logical cluster of the context. Reads are live: a
// token of a deleted account must not work. They do not use requests, because a server that is stopping rejects its own
// requests while it still serves requests with tokens.
type Getter struct {
	Objects Objects
	// Label records in a Secret the day on which its token was used. Upstream's client for this does not reach logical
	// clusters.
	Label func(ctx context.Context, secret *corev1.Secret, label, day string) error
}

// Objects are the built-in objects of the cluster of each call's context.
type Objects interface {
	// Get reads an object into one of an external version. It returns a NotFound error if the object does not exist.
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
}

var _ serviceaccount.ServiceAccountTokenGetter = Getter{}

// GetServiceAccount implements serviceaccount.ServiceAccountTokenGetter.
func (g Getter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return get(ctx, g, namespace, name, &corev1.ServiceAccount{})
}

// GetSecret implements serviceaccount.ServiceAccountTokenGetter. It sets the label of today on a Secret with a token, so that
// upstream does not try to add it.
func (g Getter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := get(ctx, g, namespace, name, &corev1.Secret{})
	if err != nil || secret.Type != corev1.SecretTypeServiceAccountToken {
		return secret, err
	}
	now := time.Now().UTC()
	today, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	if used := secret.Labels[serviceaccount.LastUsedLabelKey]; used == today || used == tomorrow {
		return secret, nil
	}
	if err := g.Label(ctx, secret, serviceaccount.LastUsedLabelKey, today); err != nil {
		cluster, _ := logicalcluster.NameFrom(ctx)
		decisionlog.ForChange(ctx, cluster).Info("Labelling the Secret of a used token failed", decisionlog.Cluster, cluster,
			decisionlog.Namespace, secret.Namespace, decisionlog.Name, secret.Name, decisionlog.Error, err)
	}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, serviceaccount.LastUsedLabelKey, today)
	return secret, nil
}

// GetPod implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (Getter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// GetNode implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (Getter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// GetValidatingWebhookConfiguration implements serviceaccount.ServiceAccountTokenGetter.
func (g Getter) GetValidatingWebhookConfiguration(ctx context.Context,
	name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return get(ctx, g, "", name, &admissionregistrationv1.ValidatingWebhookConfiguration{})
}

// GetMutatingWebhookConfiguration implements serviceaccount.ServiceAccountTokenGetter.
func (g Getter) GetMutatingWebhookConfiguration(ctx context.Context,
	name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return get(ctx, g, "", name, &admissionregistrationv1.MutatingWebhookConfiguration{})
}

func get[T runtime.Object](ctx context.Context, g Getter, namespace, name string, into T) (T, error) {
	return into, g.Objects.Get(storage.WithoutRestriction(ctx), namespace, name, into)
}
