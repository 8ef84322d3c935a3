package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/identity"
)

// secretName is the name of the Secret of an agent on its cluster, with its key and certificate.
const secretName = "kcp-fleet-agent-"

// credential is the key and certificate of the agent. They are in a Secret on the cluster, so that another pod continues with them.
type credential struct {
	agent *Agent
	// refused is true after the fleet has refused the certificate, because the agent was replaced.
	refused bool
}

// obtain returns a configuration with a valid certificate, and the time to renew it. It waits until the first request is approved.
func (c *credential) obtain(ctx context.Context) (*rest.Config, time.Time, error) {
	secret, err := c.load(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	renewal, ok := renewalOf(secret)
	refused := c.refused
	c.refused = false // if there is no token for another certificate, the present one is tried again
	if ok && !refused {
		config := c.with(secret)
		if time.Now().Before(renewal) {
			return config, renewal, nil
		}
		if err := c.request(ctx, config, secret); err != nil {
			c.refused = isRefused(err)
			return nil, time.Time{}, fmt.Errorf("renewing the certificate: %w", err)
		}
	} else {
		token, err := c.agent.token()
		if err != nil {
			return nil, time.Time{}, err
		}
		config := c.agent.configuration()
		config.BearerToken = strings.TrimSpace(token)
		if err := c.request(ctx, config, secret); err != nil {
			return nil, time.Time{}, fmt.Errorf("requesting the first certificate: %w", err)
		}
	}
	if renewal, ok = renewalOf(secret); !ok {
		return nil, time.Time{}, fmt.Errorf("the fleet issued a certificate that is not valid")
	}
	return c.with(secret), renewal, nil
}

// isRefused reports whether the fleet does not accept the certificate. What the cluster forbids is no reason to request another one.
func isRefused(err error) bool {
	var e fleetError
	return errors.As(err, &e) && (apierrors.IsForbidden(e) || apierrors.IsUnauthorized(e))
}

// renewalOf returns when two thirds of the lifetime of a certificate are over. ok is false without a certificate that is valid now.
func renewalOf(secret *corev1.Secret) (at time.Time, ok bool) {
	certificate, err := identity.ParseCertificate(secret.Data[corev1.TLSCertKey])
	if err != nil || time.Now().After(certificate.NotAfter) {
		return at, false
	}
	return certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) * 2 / 3), true
}

func (c *credential) with(secret *corev1.Secret) *rest.Config {
	config := c.agent.configuration()
	config.CertData, config.KeyData = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	return config
}

func (c *credential) load(ctx context.Context) (*corev1.Secret, error) {
	secret, err := c.agent.local.CoreV1().Secrets(v1alpha1.Namespace).Get(ctx, secretName+c.agent.options.Cluster, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: secretName + c.agent.options.Cluster}}
		secret, err = c.agent.local.CoreV1().Secrets(v1alpha1.Namespace).Create(ctx, fresh, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("secret of the agent: %w", err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return secret, nil
}

// pendingKey is the field of the Secret with the key of a request that has no certificate yet.
const pendingKey = "pending.key"

// request requests a certificate and stores it with its key. It waits for the approval.
func (c *credential) request(ctx context.Context, config *rest.Config, secret *corev1.Secret) error {
	if len(secret.Data[pendingKey]) == 0 {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		request, err := identity.NewRequest(private)
		if err != nil {
			return err
		}
		if secret.Data[pendingKey], err = identity.MarshalKey(private); err != nil {
			return err
		}
		secret.Data["pending.csr"] = request
		if err := c.store(ctx, secret); err != nil {
			return err
		}
	}
	request := string(secret.Data["pending.csr"])
	fleet, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	told := false
	for {
		cluster, err := c.agent.updateCluster(ctx, fleet, func(s *v1alpha1.ClusterStatus) { s.Request = request })
		if err != nil {
			return err
		}
		if identity.IsFor(cluster.Status.Certificate, request) {
			secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = []byte(cluster.Status.Certificate), secret.Data[pendingKey]
			delete(secret.Data, pendingKey)
			delete(secret.Data, "pending.csr")
			return c.store(ctx, secret)
		}
		if fingerprint, err := identity.Fingerprint(request); err == nil && !told {
			klog.Background().Info("Waiting for the approval of the certificate", "key", fingerprint)
			told = true
		}
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (c *credential) store(ctx context.Context, secret *corev1.Secret) error {
	updated, err := c.agent.local.CoreV1().Secrets(v1alpha1.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("storing the certificate: %w", err)
	}
	*secret = *updated
	return nil
}
