package installation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Credentials returns the operator's credentials for a root shard.
func Credentials(ctx context.Context, c client.Reader, root *shard.Shard) (kcpaccess.Credentials, error) {
	pair, err := ReadSecret(ctx, c, root.Namespace, root.Leaf(shard.Operator))
	if err != nil {
		return kcpaccess.Credentials{}, err
	}
	authorities, err := ReadSecret(ctx, c, root.Namespace, root.ServerBundle())
	return kcpaccess.Credentials{
		URL: root.BaseURL(), Certificate: pair[corev1.TLSCertKey], CertificateKey: pair[corev1.TLSPrivateKeyKey],
		Authorities: authorities[corev1.TLSCertKey],
	}, err
}

// ReadSecret returns the data of a Secret of the operator.
func ReadSecret(ctx context.Context, c client.Reader, namespace, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Wait("SecretNotReady", "waiting for Secret %s", name)
	}
	return secret.Data, err
}
