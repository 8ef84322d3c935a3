package etcdcluster

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/certmanager"
	"github.com/kcplane/kcp/operator/operatortest"
)

// asks connects to a member with a certificate, and returns why it is not let in.
func (r *rig) asks(certificate tls.Certificate) error {
	r.t.Helper()
	config, err := credentials(operatortest.Read(r.t, r.Cluster, ClientSecretName("x"), &corev1.Secret{}))
	r.must(err)
	config.Certificates = []tls.Certificate{certificate}
	config.MaxVersion = tls.VersionTLS12 // where who is refused learns of it in the handshake
	connection, err := tls.Dial("tcp", net.JoinHostPort(r.address(0), strconv.Itoa(ClientPort)), config)
	if err != nil {
		return err
	}
	return connection.Close()
}

func (r *rig) pair(secret string) tls.Certificate {
	r.t.Helper()
	data := operatortest.Read(r.t, r.Cluster, secret, &corev1.Secret{}).Data
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	r.must(err)
	return pair
}

// client returns a certificate that an authority signed for somebody who calls himself as the operator does.
func (by *authority) client(t *testing.T) tls.Certificate {
	t.Helper()
	key := newKey(t)
	_, as := by.certify(t, &x509.Certificate{Subject: pkix.Name{CommonName: operatorName("x")}}, key)
	certificate := tls.Certificate{Certificate: [][]byte{as.certificate.Raw}, PrivateKey: key}
	if by.chain != nil {
		certificate.Certificate = append(certificate.Certificate, by.certificate.Raw)
	}
	return certificate
}

func TestMembersLetInWhomTheirOwnAuthorityHasSigned(t *testing.T) {
	r := newRigOf(t, v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), TLS: &v1alpha1.EtcdClusterTLSSpec{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}})
	authority := func(name string, by *authority) *authority {
		_, as := by.certify(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true}, newKey(t))
		return as
	}
	root := authority("root", nil)
	r.issuers["company"] = authority("company", root) // whose certificate is in the chain of all that it signs
	r.ready(1)
	if chain := operatortest.Read(t, r.Cluster, ClientIssuerName("x"), &corev1.Secret{}).Data["tls.crt"]; strings.Count(string(chain), "BEGIN") != 2 {
		t.Fatalf("the issuer gave no chain:\n%s", chain)
	}
	first := r.pair(ClientSecretName("x"))
	check := func(when string) {
		t.Helper()
		for who, certificate := range map[string]tls.Certificate{
			"the client": r.pair(ClientSecretName("x")), "the operator": r.pair(operatorName("x")), "the client of the beginning": first,
			"another of the authority": r.issuers[ClientIssuerName("x")].client(t),
		} {
			if err := r.asks(certificate); err != nil {
				t.Errorf("%s, %s is refused: %v", when, who, err)
			}
		}
		for who, certificate := range map[string]tls.Certificate{
			"somebody of the issuer": r.issuers["company"].client(t), "somebody of its root": root.client(t),
			"somebody of another authority of the issuer's": authority(ClientIssuerName("x"), r.issuers["company"]).client(t),
			"a peer": r.pair(peerName("x")), "nobody": {},
		} {
			if err := r.asks(certificate); err == nil || !strings.Contains(err.Error(), "remote error: tls") {
				t.Errorf("%s, %s is not refused: %v", when, who, err)
			}
		}
	}
	check("in the beginning")

	renew := func(name string) { r.sign(operatortest.Read(t, r.Cluster, name, &certmanager.Certificate{})) }
	renew(ClientSecretName("x"))
	renew(operatorName("x"))
	r.ready(1)
	check("with new certificates")

	pod := func() types.UID { return operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID }
	before := pod()
	renew(ClientIssuerName("x"))
	renew(peerCAName("x"))
	r.until("members that know the new authorities", func(c *v1alpha1.EtcdCluster) bool {
		return is(v1alpha1.ConditionReady)(c) && pod() != before
	})
	renew(ClientSecretName("x"))
	check("with new authorities")
}
