package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

type csrOption func(*certificatesv1.CertificateSigningRequest)

func csr(options ...csrOption) *certificatesv1.CertificateSigningRequest {
	c := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr", CreationTimestamp: ago(time.Minute)}}
	for _, o := range options {
		o(c)
	}
	return c
}

func created(d time.Duration) csrOption {
	return func(c *certificatesv1.CertificateSigningRequest) { c.CreationTimestamp = ago(d) }
}

func condition(kind certificatesv1.RequestConditionType, since time.Duration) csrOption {
	return func(c *certificatesv1.CertificateSigningRequest) {
		c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, LastUpdateTime: ago(since),
		})
	}
}

func issued(t *testing.T, validFor time.Duration) csrOption {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(validFor)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func certificate(content []byte) csrOption {
	return func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = content }
}

func deleting(c *certificatesv1.CertificateSigningRequest) { at := ago(0); c.DeletionTimestamp = &at }

func TestRequestsAreKeptAsLongAsInKubernetes(t *testing.T) {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	for _, test := range []struct {
		name    string
		csr     *certificatesv1.CertificateSigningRequest
		removed bool
	}{
		{"new", csr(), false},
		{"without a time", csr(func(c *certificatesv1.CertificateSigningRequest) { c.CreationTimestamp = metav1.Time{} }), false},
		{"waiting for a day", csr(created(24 * time.Hour)), false},
		{"waiting for more than a day", csr(created(24*time.Hour + time.Second)), true},
		{"waiting for more than a day, being deleted", csr(created(25*time.Hour), deleting), false},
		{"denied just now", csr(created(48*time.Hour), condition(denied, time.Minute)), false},
		{"denied more than an hour ago", csr(condition(denied, time.Hour+time.Second)), true},
		{"failed just now", csr(condition(failed, time.Hour)), false},
		{"failed more than an hour ago", csr(condition(failed, time.Hour+time.Second)), true},
		{"approved, then failed", csr(condition(approved, 2*time.Hour), condition(failed, 2*time.Hour)), true},
		{"approved, not yet signed", csr(created(48*time.Hour), condition(approved, 24*time.Hour)), false},
		{"approved, not signed for more than a day", csr(condition(approved, 24*time.Hour+time.Second)), true},
		{"issued just now", csr(condition(approved, time.Hour), issued(t, time.Hour)), false},
		{"issued more than an hour ago", csr(condition(approved, time.Hour+time.Second), issued(t, 24*time.Hour)), true},
		{"issued just now, expired", csr(condition(approved, time.Minute), issued(t, -time.Second)), true},
		{"issued just now, not PEM", csr(condition(approved, time.Minute), certificate([]byte("x"))), false},
		{"issued just now, not a certificate", csr(condition(approved, time.Minute),
			certificate(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))), false},
		{"approved without a time", csr(func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: approved}}
		}), false},
	} {
		if reason := reasonToRemove(test.csr, now); (reason != "") != test.removed {
			t.Errorf("%s: removed for the reason %q, want removed: %t", test.name, reason, test.removed)
		}
	}
}

// world is a set whose informer of requests is filled with objs, and a client that records what is deleted where.
func world(t *testing.T, objs ...*certificatesv1.CertificateSigningRequest) (*informers.Set, *fake.Clientset, func() []string) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	for _, o := range objs {
		list.Items = append(list.Items, *o)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	resource := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	i := informers.New(resource, &certificatesv1.CertificateSigningRequest{}, lw, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-i.Synced()

	var mu sync.Mutex
	var deleted []string
	client := fake.NewClientset()
	client.PrependReactor("delete", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		d := action.(clienttesting.DeleteActionImpl)
		deleted = append(deleted, d.Name+" "+string(*d.DeleteOptions.Preconditions.UID)+" "+*d.DeleteOptions.Preconditions.ResourceVersion)
		return true, nil, nil
	})
	set := &informers.Set{CertificateSigningRequests: informers.Lister[*certificatesv1.CertificateSigningRequest]{Informer: i}}
	return set, client, func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), deleted...) }
}

func in(cluster logicalcluster.Name, name, uid string, options ...csrOption) *certificatesv1.CertificateSigningRequest {
	c := csr(options...)
	c.Name, c.UID, c.ResourceVersion = name, types.UID(uid), "7"
	c.Annotations = map[string]string{logicalcluster.AnnotationKey: string(cluster)}
	return c
}

func TestOnlyDueRequestsAreDeletedInAllClusters(t *testing.T) {
	set, client, deleted := world(t,
		in("a", "old", "1", created(25*time.Hour)), in("b", "old", "2", created(time.Hour)), in("b", "denied", "3", condition(certificatesv1.CertificateDenied, 2*time.Hour)))
	clock := testingclock.NewFakeClock(now)
	cleaner := NewCleaner(Inputs{Set: set, Kube: client, Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); cleaner.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	wait(t, deleted, "old 1 7", "denied 3 7")
	clock.Step(24 * time.Hour)
	wait(t, deleted, "old 1 7", "denied 3 7", "old 2 7")
}

// wait returns when everything wanted was deleted at least once; anything else deleted is an error.
func wait(t *testing.T, deleted func() []string, wanted ...string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		missing := map[string]bool{}
		for _, w := range wanted {
			missing[w] = true
		}
		for _, d := range deleted() {
			found := false
			for _, w := range wanted {
				found = found || w == d
			}
			if !found {
				t.Fatalf("%q was deleted, want only %q", d, wanted)
			}
			delete(missing, d)
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not deleted: %v", missing)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestARequestThatHasChangedIsNoFailure(t *testing.T) {
	set, client, _ := world(t, in("a", "old", "1", created(25*time.Hour)))
	cleaner := newCleaner(Inputs{Set: set, Kube: client, Clock: testingclock.NewFakeClock(now)})
	resource := set.CertificateSigningRequests.Resource().GroupResource()
	for _, test := range []struct {
		answer error
		fails  bool
	}{
		{apierrors.NewConflict(resource, "old", errors.New("precondition")), false},
		{apierrors.NewNotFound(resource, "old"), false},
		{apierrors.NewInternalError(errors.New("etcd is away")), true},
	} {
		client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
		if err := cleaner.reconcile(t.Context(), informers.Key{Cluster: "a", Name: "old"}); (err != nil) != test.fails {
			t.Errorf("after the answer %v: got %v, want an error: %t", test.answer, err, test.fails)
		}
	}
}
