package authentication

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Getter reads the objects that a service account token is bound to, in the logical cluster of the context. Reads are
// live: a token of a deleted account must not work.
type Getter struct {
	// Client reaches the cluster of each call's context. It is set before the first request is served.
	Client kubernetes.Interface
}

var _ serviceaccount.ServiceAccountTokenGetter = &Getter{}

// GetServiceAccount implements serviceaccount.ServiceAccountTokenGetter.
func (g *Getter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return g.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetSecret implements serviceaccount.ServiceAccountTokenGetter.
func (g *Getter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return g.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetPod implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (g *Getter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// GetNode implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (g *Getter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// GetValidatingWebhookConfiguration implements serviceaccount.ServiceAccountTokenGetter.
func (g *Getter) GetValidatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return g.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

// GetMutatingWebhookConfiguration implements serviceaccount.ServiceAccountTokenGetter.
func (g *Getter) GetMutatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return g.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}
