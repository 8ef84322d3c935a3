package clientcertificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// secrets is an etcd that several servers share.
type secrets struct {
	stored *corev1.Secret
	race   *corev1.Secret // the Secret that another server stores just before this one
}

func (s *secrets) Get(_ context.Context, _, name string, into runtime.Object) error {
	if s.stored == nil {
		return apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	s.stored.DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func (s *secrets) Create(ctx context.Context, obj runtime.Object) error {
	if name, err := logicalcluster.NameFrom(ctx); err != nil || name != logicalcluster.SystemAdmin {
		return fmt.Errorf("created in %s, %w", name, err)
	}
	if s.race != nil {
		s.stored = s.race
	}
	if s.stored != nil {
		return apierrors.NewAlreadyExists(corev1.Resource("secrets"), SecretName)
	}
	s.stored = obj.(*corev1.Secret)
	return nil
}

func logicalCluster(name, uid string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: corev1alpha1.LogicalClusterName, UID: types.UID(uid), Annotations: map[string]string{logicalcluster.AnnotationKey: name},
	}}
}

// newAuthority returns an authority of a server that knows clusters.
func newAuthority(t *testing.T, objects Objects, clusters ...*corev1alpha1.LogicalCluster) (*Authority, *testingclock.FakeClock) {
	t.Helper()
	list := &corev1alpha1.LogicalClusterList{}
	for _, c := range clusters {
		list.Items = append(list.Items, *c)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	i := informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-i.Synced()
	clock := testingclock.NewFakeClock(now)
	a, err := New(informers.Lister[*corev1alpha1.LogicalCluster]{Informer: i}, objects, clock)
	if err != nil {
		t.Fatal(err)
	}
	return a, clock
}

var key = func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}()

func request(t *testing.T, key crypto.Signer, name string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name, Organization: groups, OrganizationalUnit: []string{"unit"}}, DNSNames: []string{"localhost"},
		URIs: []*url.URL{clusterURI("victim", "1")},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
}

func sign(t *testing.T, a *Authority, lc *corev1alpha1.LogicalCluster, r *certificatesv1.CertificateSigningRequest) *x509.Certificate {
	t.Helper()
	encoded, err := a.Sign(t.Context(), lc, r)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(encoded)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func presenting(certificates ...*x509.Certificate) *http.Request {
	return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: certificates}}
}

func TestACertificateProvesAnIdentityInItsClusterOnly(t *testing.T) {
	lc := logicalCluster("a", "uid-1")
	a, _ := newAuthority(t, &secrets{}, lc)
	certificate := sign(t, a, lc, request(t, key, "alice", "team-a"))
	if len(certificate.DNSNames) != 0 || len(certificate.Subject.OrganizationalUnit) != 0 || certificate.IsCA || !slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the certificate has more than the name and groups of the request: %v, %v", certificate.Subject, certificate.DNSNames)
	}
	response, ok, err := a.AuthenticateRequest(presenting(certificate))
	if !ok || err != nil {
		t.Fatalf("got %t, %v", ok, err)
	}
	u := response.User
	if u.GetName() != "alice" || !slices.Equal(u.GetGroups(), []string{"team-a", user.AllAuthenticated}) || !slices.Equal(u.GetExtra()[authorization.ScopesKey], []string{"cluster:a"}) {
		t.Errorf("got %v", u)
	}
	if in, issued := authorization.IssuedIn(u); !issued || in != "a" {
		t.Errorf("issued in %q, %t", in, issued)
	}
	for cluster, want := range map[logicalcluster.Name]string{"a": "alice", "b": user.Anonymous, logicalcluster.Root: user.Anonymous} {
		if got := authorization.EffectiveIdentities(u, cluster); len(got) != 1 || got[0].GetName() != want {
			t.Errorf("in %s: %v, want %s", cluster, got, want)
		}
	}
}

func TestInvalidCertificatesAreRejected(t *testing.T) {
	lc := logicalCluster("a", "uid-1")
	shared := &secrets{}
	a, clock := newAuthority(t, shared, lc)
	gone := sign(t, a, logicalCluster("gone", "uid-2"), request(t, key, "alice"))
	former := sign(t, a, logicalCluster("a", "uid-of-a-former-one"), request(t, key, "alice"))
	good := sign(t, a, lc, request(t, key, "alice"))
	other, _ := newAuthority(t, &secrets{}, lc)
	forged := sign(t, other, lc, request(t, key, "alice"))
	// The authority would never sign this.
	handmade := func(template x509.Certificate) *x509.Certificate {
		pair := a.current.Load()
		template.SerialNumber, _ = serial()
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, &template, pair.certificate, key.Public(), pair.key)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	in := []*url.URL{clusterURI("a", "uid-1")}
	for name, certificate := range map[string]*x509.Certificate{
		"of a cluster that is gone": gone, "of a former cluster of the name": former, "of another authority of the name": forged,
		"of the system":         handmade(x509.Certificate{Subject: pkix.Name{CommonName: "system:admin"}, URIs: in, ExtKeyUsage: client}),
		"of a group of systems": handmade(x509.Certificate{Subject: pkix.Name{CommonName: "a", Organization: []string{user.SystemPrivilegedGroup}}, URIs: in, ExtKeyUsage: client}),
		"of no cluster":         handmade(x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, ExtKeyUsage: client}),
		"of two clusters":       handmade(x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, URIs: append(in, clusterURI("b", "2")), ExtKeyUsage: client}),
		"for servers":           handmade(x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, URIs: in, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
	} {
		if response, ok, err := a.AuthenticateRequest(presenting(certificate)); ok || err == nil {
			t.Errorf("a certificate %s is accepted: %v", name, response)
		}
	}
	for name, r := range map[string]*http.Request{"without TLS": {}, "without a certificate": presenting(), "of others": presenting(&x509.Certificate{Issuer: pkix.Name{CommonName: "other"}}, good)} {
		if _, ok, err := a.AuthenticateRequest(r); ok || err != nil {
			t.Errorf("%s: got %t, %v, want no opinion", name, ok, err)
		}
	}
	clock.Step(maxDuration + time.Second)
	if _, ok, err := a.AuthenticateRequest(presenting(good)); ok || err == nil {
		t.Error("an expired certificate is accepted")
	}
}

func TestInvalidRequestsAreNotSigned(t *testing.T) {
	lc := logicalCluster("a", "uid-1")
	a, _ := newAuthority(t, &secrets{}, lc)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		r := request(t, key, "alice")
		change(r)
		return r
	}
	for want, r := range map[string]*certificatesv1.CertificateSigningRequest{
		`the common name "system:admin" is reserved`:    request(t, key, "system:admin"),
		`the common name "apis.kcp.io:binding:x" is`:    request(t, key, "apis.kcp.io:binding:x"),
		`the organization "system:masters" is reserved`: request(t, key, "alice", "team-a", "system:masters"),
		`the organization "system:authenticated" is`:    request(t, key, "alice", "system:authenticated"),
		"must have 1 to 253 bytes, but has 0":           request(t, key, ""),
		"the subject has 65 organizations":              request(t, key, "alice", strings.Split(strings.Repeat("g,", 64)+"g", ",")...),
		"the RSA key has 1024 bits":                     request(t, small, "alice"),
		"the curve P-224 has 224 bits":                  request(t, weak, "alice"),
		`"server auth" is not a usage`: with(func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth}
		}),
		`must contain "client auth"`: with(func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil }),
		"must be a PEM block":        with(func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }),
	} {
		if _, err := a.Sign(t.Context(), lc, r); !errors.As(err, &Invalid{}) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCertificatesAreValidForALimitedTime(t *testing.T) {
	lc := logicalCluster("a", "uid-1")
	a, clock := newAuthority(t, &secrets{}, lc)
	for _, c := range []struct {
		seconds *int32
		want    time.Duration
	}{{nil, maxDuration}, {ptr.To[int32](1 << 30), maxDuration}, {ptr.To[int32](3600), time.Hour}, {ptr.To[int32](1), minDuration}} {
		r := request(t, key, "alice")
		r.Spec.ExpirationSeconds = c.seconds
		if got := sign(t, a, lc, r).NotAfter; !got.Equal(now.Add(c.want)) {
			t.Errorf("%v: valid until %s", c.seconds, got)
		}
	}
	clock.Step(lifetime - time.Hour)
	if got := sign(t, a, lc, request(t, key, "alice")).NotAfter; !got.Equal(now.Add(lifetime)) {
		t.Errorf("the certificate ends at %s, its authority at %s", got, now.Add(lifetime))
	}
}

type listener chan struct{}

func (l listener) Enqueue() { l <- struct{}{} }

func TestServersShareOneAuthority(t *testing.T) {
	lc := logicalCluster("a", "uid-1")
	shared := &secrets{}
	one, _ := newAuthority(t, shared, lc)
	two, _ := newAuthority(t, shared, lc)
	placeholder := one.CurrentCABundleContent()
	changed := make(listener, 1)
	two.AddListener(changed)
	certificate := sign(t, one, lc, request(t, key, "alice"))
	if err := two.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, ok, err := two.AuthenticateRequest(presenting(certificate)); !ok || err != nil {
		t.Errorf("another server: %t, %v", ok, err)
	}
	if string(one.CurrentCABundleContent()) != string(two.CurrentCABundleContent()) || string(one.CurrentCABundleContent()) == string(placeholder) {
		t.Error("the servers name different authorities")
	}
	// A third server creates the authority at the same time as another one.
	racing := &secrets{race: shared.stored}
	three, _ := newAuthority(t, racing, lc)
	if err := three.Load(t.Context()); err != nil || string(three.CurrentCABundleContent()) != string(one.CurrentCABundleContent()) {
		t.Errorf("the server that came second has an authority of its own: %v", err)
	}
	// Deleting the Secret ends all certificates.
	shared.stored = nil
	for _, a := range []*Authority{one, two} {
		if err := a.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := a.AuthenticateRequest(presenting(certificate)); ok || err == nil {
			t.Error("a certificate of the former authority is accepted")
		}
	}
	shared.stored.Data[corev1.TLSPrivateKeyKey] = []byte("x")
	shared.stored.Data[corev1.TLSCertKey] = nil
	if err := one.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "delete the Secret to create a new certificate authority") {
		t.Errorf("a damaged Secret: %v", err)
	}
}

func TestAServerReloadsTheAuthority(t *testing.T) {
	shared := &secrets{}
	a, clock := newAuthority(t, shared)
	changed := make(listener)
	a.AddListener(changed)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return clock.HasWaiters(), nil }); err != nil {
		t.Fatal(err)
	}
	clock.Step(reloadInterval)
	<-changed
	cancel()
	<-ended
}
