package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/identity"
)

// issuer is a fleet that issues a certificate for each request at once, as it does for an agent that has one.
type issuer struct {
	authority *identity.Authority
	mu        sync.Mutex // guards all below
	cluster   v1alpha1.Cluster
	issued    int
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.Method == http.MethodPut {
		received := v1alpha1.Cluster{}
		if err := json.NewDecoder(r.Body).Decode(&received); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if received.Status.Request != i.cluster.Status.Request {
			certificate, err := i.authority.Issue("east", "k", received.Status.Request, time.Now())
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			i.issued++
			i.cluster.Status.Request, i.cluster.Status.Certificate = received.Status.Request, certificate
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(i.cluster)
}

// newIssuer starts a fleet, and returns an agent of the cluster east whose certificate was issued some time ago.
func newIssuer(t *testing.T, age time.Duration) (*issuer, *Agent) {
	t.Helper()
	certificate, key, err := identity.NewAuthority(time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{}
	if i.authority, err = identity.ParseAuthority(certificate, key); err != nil {
		t.Fatal(err)
	}
	i.cluster.APIVersion, i.cluster.Kind, i.cluster.Name = "fleet.kcp.io/v1alpha1", "Cluster", "east"
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	// The first certificate is that of the fleet itself, and older than two thirds of any lifetime of agents.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: secretName + "east"}}
	secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	a := &Agent{options: Options{Cluster: "east", URL: server.URL}, local: kubefake.NewClientset(secret)}
	a.credential = &credential{agent: a}
	return i, a
}

const lifetimeOfAuthority = 10 * 365 * 24 * time.Hour

func TestACertificateIsRenewedAfterTwoThirdsOfItsLifetime(t *testing.T) {
	for _, test := range []struct {
		age  time.Duration
		want int
	}{{lifetimeOfAuthority / 2, 0}, {lifetimeOfAuthority * 3 / 4, 1}} {
		i, a := newIssuer(t, test.age)
		for range 2 { // the second time, the agent continues with what it has stored
			_, renewal, err := a.credential.obtain(t.Context())
			if err != nil || !renewal.After(time.Now()) {
				t.Fatalf("the certificate is renewed at %s: %v", renewal, err)
			}
		}
		if i.issued != test.want {
			t.Errorf("at the age of %s, %d certificates were issued, want %d", test.age, i.issued, test.want)
		}
	}
}

func TestAgentsWithOneIdentityRenewTheirCertificateTogether(t *testing.T) {
	i, one := newIssuer(t, lifetimeOfAuthority*3/4)
	other := &Agent{options: one.options, local: one.local}
	other.credential = &credential{agent: other}
	var group sync.WaitGroup
	configs := make(chan string, 2)
	for _, a := range []*Agent{one, other} {
		group.Go(func() {
			for t.Context().Err() == nil { // a session that fails is started again
				if config, _, err := a.credential.obtain(t.Context()); err == nil {
					configs <- string(config.CertData)
					return
				}
			}
		})
	}
	group.Wait()
	close(configs)
	stored, err := one.credential.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Data[pendingKey]) > 0 {
		t.Error("a key without a certificate is stored")
	}
	for certificate := range configs {
		if _, err := identity.ParseCertificate([]byte(certificate)); err != nil {
			t.Error(err)
		}
	}
	if renewal, ok := renewalOf(stored); !ok || !renewal.After(time.Now()) || i.issued < 1 {
		t.Errorf("the stored certificate is renewed at %s, after %d were issued", renewal, i.issued)
	}
}
