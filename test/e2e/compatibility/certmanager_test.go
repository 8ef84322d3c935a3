package compatibility

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const issuers = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self-signed, namespace: default}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority, namespace: default}
spec: {isCA: true, commonName: authority, secretName: authority, privateKey: {algorithm: ECDSA}, issuerRef: {name: self-signed}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: authority, namespace: default}
spec: {ca: {secretName: authority}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop, namespace: default}
spec: {secretName: shop, dnsNames: [shop.example.com], privateKey: {algorithm: ECDSA}, issuerRef: {name: authority}}
`

// startCertManager installs the definitions of cert-manager, and starts its controller.
func startCertManager(t *testing.T, w workspace) {
	t.Helper()
	kcptest.CertManager.Install(t, w.Cluster, 1)
	w.start(t, nil, "certmanager", "controller", "--kubeconfig="+w.kubeconfig, "--healthz-listen-address="+kcptest.FreeAddress(t))
}

// certManager issues a certificate with a CA of the workspace, and another one when the Certificate changes.
func certManager(t *testing.T, w workspace) {
	startCertManager(t, w)
	w.Apply(t, issuers)
	awaitCertificate(t, w, "shop.example.com")
	w.Kubectl(t, "patch", "certificate", "shop", "--namespace=default", "--type=merge",
		`--patch={"spec":{"dnsNames":["shop.example.com","www.example.com"]}}`)
	awaitCertificate(t, w, "www.example.com")
	w.Kubectl(t, "wait", "certificate/shop", "--namespace=default", "--for=condition=Ready", "--timeout=60s")
}

// awaitCertificate waits until the Secret shop has a certificate for a name, signed by the CA, and returns the Secret.
func awaitCertificate(t *testing.T, w workspace, name string) *corev1.Secret {
	t.Helper()
	var secret *corev1.Secret
	kcptest.Eventually(t, "the Secret has a certificate for "+name, func(ctx context.Context) (err error) {
		secrets := w.Kube(t, w.account).CoreV1().Secrets("default")
		authority, err := secrets.Get(ctx, "authority", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if secret, err = secrets.Get(ctx, "shop", metav1.GetOptions{}); err != nil {
			return err
		}
		block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if block == nil {
			return fmt.Errorf("the Secret has no certificate")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.Data[corev1.TLSCertKey])
		_, err = certificate.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
		return err
	})
	return secret
}

const injected = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop, annotations: {cert-manager.io/inject-ca-from: default/shop}}
webhooks:
- name: shop.example.com
  clientConfig: {url: "https://shop.example.com/validate"}
  rules: [{apiGroups: [shop.example.com], apiVersions: ["*"], resources: ["*"], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// caInjector injects the CA of a certificate into a webhook configuration.
func caInjector(t *testing.T, w workspace) {
	startCertManager(t, w)
	w.start(t, nil, "certmanager", "cainjector", "--kubeconfig="+w.kubeconfig, "--enable-apiservices-injectable=false")
	w.Apply(t, issuers)
	w.Apply(t, injected)
	secret := awaitCertificate(t, w, "shop.example.com")
	kcptest.Eventually(t, "the CA is injected", func(ctx context.Context) error {
		configuration, err := w.Kube(t, w.account).AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, want := configuration.Webhooks[0].ClientConfig.CABundle, secret.Data["ca.crt"]; string(got) != string(want) {
			return fmt.Errorf("the webhook has the CAs %q, want %q", base64.StdEncoding.EncodeToString(got), want)
		}
		return nil
	})
}
