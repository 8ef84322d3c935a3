package etcdcluster

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// asks connects to a member with a certificate, and returns why it is not let in.
func (r *testCluster) dial(certificate tls.Certificate) error {
	r.t.Helper()
	secret := operatortest.Read(r.t, r.Cluster, ClientSecretName("x"), &corev1.Secret{})
	config, err := credentials(secret, secret.Data["ca.crt"])
	r.must(err)
	config.Certificates = []tls.Certificate{certificate}
	config.MaxVersion = tls.VersionTLS12 // where who is refused learns of it in the handshake
	connection, err := tls.Dial("tcp", net.JoinHostPort(r.address(0), strconv.Itoa(ClientPort)), config)
	if err != nil {
		return err
	}
	return connection.Close()
}

func (r *testCluster) pair(secret string) tls.Certificate {
	r.t.Helper()
	data := operatortest.Read(r.t, r.Cluster, secret, &corev1.Secret{}).Data
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	r.must(err)
	return pair
}

// client returns a certificate that an authority signed for the common name of the operator.
func (by *authority) client(t *testing.T) tls.Certificate {
	t.Helper()
	key := operatortest.NewKey(t)
	_, as := by.certify(t, &x509.Certificate{Subject: pkix.Name{CommonName: operatorName("x")}}, key)
	certificate := tls.Certificate{Certificate: [][]byte{as.certificate.Raw}, PrivateKey: key}
	if by.chain != nil {
		certificate.Certificate = append(certificate.Certificate, by.certificate.Raw)
	}
	return certificate
}

// renew issues certificates again.
func (r *testCluster) renew(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.sign(operatortest.Read(r.t, r.Cluster, name, &certmanager.Certificate{}))
	}
}

func TestMembersAcceptOnlyCertificatesOfTheirAuthority(t *testing.T) {
	r := newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), TLS: &v1alpha1.EtcdClusterTLSSpec{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}})
	authority := func(name string, by *authority) *authority {
		_, as := by.certify(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true}, operatortest.NewKey(t))
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
			if err := r.dial(certificate); err != nil {
				t.Errorf("%s, %s is refused: %v", when, who, err)
			}
		}
		for who, certificate := range map[string]tls.Certificate{
			"a client of the issuer": r.issuers["company"].client(t), "a client of its root": root.client(t),
			"a client of another authority of the issuer": authority(ClientIssuerName("x"), r.issuers["company"]).client(t),
			"a peer": r.pair(peerName("x")), "no certificate": {},
		} {
			if err := r.dial(certificate); err == nil || !strings.Contains(err.Error(), "remote error: tls") {
				t.Errorf("%s, %s is not refused: %v", when, who, err)
			}
		}
	}
	check("in the beginning")

	r.renew(ClientSecretName("x"))
	r.renew(operatorName("x"))
	r.ready(1)
	check("with new certificates")

	pod := func() types.UID { return operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID }
	before := pod()
	r.renew(ClientIssuerName("x"))
	r.renew(peerCAName("x"))
	r.until("members that know the new authorities", func(c *v1alpha1.EtcdCluster) bool {
		return is(v1alpha1.ConditionReady)(c) && pod() != before
	})
	r.renew(ClientSecretName("x"))
	check("with new authorities")
}

// Members keep running with certificates that expire soon, so no other condition reports them.
func TestCertificatesThatAreNotRenewedAreReported(t *testing.T) {
	const day = 24 * time.Hour
	r := newTestCluster(t, 1)
	if c := apimeta.FindStatusCondition(r.ready(1).Status.Conditions, v1alpha1.ConditionCertificatesExpiring); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("in the beginning, %+v", c)
	}
	setValidity := func(from, to time.Duration) {
		t.Helper()
		c := operatortest.Read(t, r.Cluster, peerName("x"), &certmanager.Certificate{})
		c.Status.NotBefore, c.Status.NotAfter = new(metav1.NewTime(time.Now().Add(from))), new(metav1.NewTime(time.Now().Add(to)))
		r.MustUpdateStatus(t, c)
	}
	setValidity(-280*day, 85*day)
	late := r.until("a warning", is(v1alpha1.ConditionCertificatesExpiring))
	if c := apimeta.FindStatusCondition(late.Status.Conditions, v1alpha1.ConditionCertificatesExpiring); !strings.Contains(c.Message, "in time: x-peer expires 20") {
		t.Errorf("it is said that %s", c.Message)
	}
	if !is(v1alpha1.ConditionReady)(late) {
		t.Error("it is not Ready")
	}
	r.staysUnchanged(3)
	setValidity(0, 365*day)
	r.until("the end of the warning", func(c *v1alpha1.EtcdCluster) bool { return !is(v1alpha1.ConditionCertificatesExpiring)(c) })
}

func TestAMissingIssuerIsReported(t *testing.T) {
	for kind, want := range map[string]string{
		"":              "spec.tls.issuerRef: there is no Issuer company: create it, or name another",
		"ClusterIssuer": "spec.tls.issuerRef: there is no ClusterIssuer company: create it, or name another",
		"Isuer":         `spec.tls.issuerRef: cert-manager has no kind of issuers "Isuer": use Issuer or ClusterIssuer`,
	} {
		spec := v1alpha1.EtcdClusterSpec{TLS: &v1alpha1.EtcdClusterTLSSpec{IssuerRef: &v1alpha1.ObjectReference{Name: "company", Kind: kind}}}
		c := operatortest.New(&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec})
		result := c.Reconcile(t, &Reconciler{Client: c, Live: c, Recorder: c.Events, Now: time.Now, Repository: "etcd", Version: DefaultVersion}, "x")
		found := operatortest.Read(t, c, "x", &v1alpha1.EtcdCluster{}).Status.Conditions
		for _, name := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionCertificatesReady} {
			if said := apimeta.FindStatusCondition(found, name); said == nil || said.Message != want || (said.Status == metav1.ConditionTrue) != (name == v1alpha1.ConditionStalled) {
				t.Errorf("%q: %+v", kind, said)
			}
		}
		if unwatched := result.RequeueAfter > 0; unwatched != (kind == "ClusterIssuer") {
			t.Errorf("%q: it looks again after %v", kind, result.RequeueAfter)
		}
	}
}

// As for every kind, an object whose name is taken reports a conflict, and continues as soon as the name is free.
func TestAnEtcdClusterWaitsForATakenName(t *testing.T) {
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: ClientServiceName("x")}}
	c := operatortest.New(&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, theirs)
	result := c.Reconcile(t, &Reconciler{Client: c, Live: c, Recorder: c.Events, Now: time.Now, Repository: "etcd", Version: DefaultVersion}, "x")
	said := apimeta.FindStatusCondition(operatortest.Read(t, c, "x", &v1alpha1.EtcdCluster{}).Status.Conditions, v1alpha1.ConditionStalled)
	if said == nil || said.Status != metav1.ConditionTrue || said.Reason != "NameConflict" || !strings.HasPrefix(said.Message, "Service x-client exists and was not created by the operator") {
		t.Errorf("it says %+v", said)
	}
	if result.RequeueAfter == 0 {
		t.Error("the object is not requeued")
	}
}
