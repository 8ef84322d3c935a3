package compatibility

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// csrControllers approves and signs the request of a kubelet. The controllers only have a CA for that signer: the server signs requests
// for kubernetes.io/kube-apiserver-client.
func csrControllers(t *testing.T, w workspace) {
	dir := t.TempDir()
	certificateFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	authority := writeAuthority(t, certificateFile, keyFile)
	w.start(t, nil, "kube-controller-manager", "--kubeconfig="+w.kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,certificatesigningrequest-cleaner-controller",
		"--cluster-signing-kubelet-client-cert-file="+certificateFile, "--cluster-signing-kubelet-client-key-file="+keyFile)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "system:node:shop", Organization: []string{"system:nodes"}}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := w.Kube(t, w.account).CertificatesV1().CertificateSigningRequests()
	_, err = requests.Create(kcptest.Context(t), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the request is approved and signed", func(ctx context.Context) error {
		signed, err := requests.Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		block, _ := pem.Decode(signed.Status.Certificate)
		if block == nil {
			return fmt.Errorf("got conditions %v", signed.Status.Conditions)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AddCert(authority)
		_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	})
}

// writeAuthority writes the certificate and the key of a new CA.
func writeAuthority(t *testing.T, certificateFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certificateFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}
