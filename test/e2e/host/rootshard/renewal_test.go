package rootshard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// renew does what cmctl renew does, and waits until cert-manager has issued the certificate again.
func (n *installed) renew(t *testing.T, certificate string) {
	t.Helper()
	revision, err := strconv.Atoi(n.Kubectl(t, "get", "certificate", certificate, "--output=jsonpath={.status.revision}"))
	if err != nil {
		t.Fatal(err)
	}
	n.Kubectl(t, "patch", "certificate", certificate, "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(
		`{"status":{"conditions":[{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"a test","lastTransitionTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339)))
	n.Kubectl(t, "wait", "certificate/"+certificate, fmt.Sprintf("--for=jsonpath={.status.revision}=%d", revision+1), "--timeout=2m")
}

// serves waits until every connection to kcp gets the certificate that is in a Secret. That takes a kubelet a minute, and a
// server another one.
func (n *installed) serves(t *testing.T, secret string) {
	t.Helper()
	encoded, err := base64.StdEncoding.DecodeString(n.Kubectl(t, "get", "secret", secret, `--output=jsonpath={.data.tls\.crt}`))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(encoded)
	want, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(n.Kubectl(t, "get", "service", "kcp-kcp", "--output=jsonpath={.spec.clusterIP}"), "6443")
	if err := wait.PollUntilContextTimeout(t.Context(), time.Second, 5*time.Minute, true, func(context.Context) (bool, error) {
		for range 10 {
			connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false, nil
			}
			got := connection.ConnectionState().PeerCertificates[0]
			connection.Close()
			if !got.Equal(want) {
				return false, nil
			}
		}
		return true, nil
	}); err != nil {
		t.Errorf("kcp does not serve the renewed certificate: %v", err)
	}
}
