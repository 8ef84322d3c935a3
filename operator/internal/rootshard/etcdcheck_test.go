package rootshard_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// pair returns a self-signed certificate for servers and clients on this machine, and its key.
func pair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private := operatortest.NewKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// address returns an address of this machine that nothing listens at.
func address(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// serveEtcd starts an etcd that authenticates clients with a certificate, and returns its endpoint.
func serveEtcd(t *testing.T, certificate, key []byte) string {
	t.Helper()
	directory := t.TempDir()
	config := embed.NewConfig()
	config.Dir, config.LogLevel = filepath.Join(directory, "data"), "panic"
	config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = config.ClientTLSInfo.CertFile, true
	for file, content := range map[string][]byte{config.ClientTLSInfo.CertFile: certificate, config.ClientTLSInfo.KeyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, peer := url.URL{Scheme: "https", Host: address(t)}, url.URL{Scheme: "http", Host: address(t)}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	return client.String()
}

func TestAnEtcdIsCheckedWithTheCertificateInTheSpec(t *testing.T) {
	certificate, key := pair(t)
	foreign, foreignKey := pair(t)
	there := serveEtcd(t, certificate, key)
	nowhere := "https://" + address(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, test := range []struct {
		name      string
		endpoints []string
		change    func(*component.EtcdTarget)
		want      []string // parts of the error; none if it answers
	}{
		{"it answers", []string{there}, nil, nil},
		{"one of two endpoints answers", []string{nowhere, there}, nil, nil},
		{"nothing listens", []string{nowhere}, nil, []string{nowhere + ": ", "connection refused"}},
		{"it accepts connections and does not answer", []string{"https://" + silent.Addr().String()}, nil, []string{silent.Addr().String() + ": no answer within 5s"}},
		{"without a certificate", []string{there}, func(q *component.EtcdTarget) { q.Certificate, q.Key = nil, nil }, []string{there + ": ", "certificate required"}},
		{"with a certificate of another CA", []string{there}, func(q *component.EtcdTarget) { q.Certificate, q.Key = foreign, foreignKey }, []string{there + ": ", "remote error: tls"}},
		{"with another CA for the server", []string{there}, func(q *component.EtcdTarget) { q.Authorities = foreign }, []string{there + ": ", "certificate signed by unknown authority"}},
		{"with an invalid key", []string{there}, func(q *component.EtcdTarget) { q.Key = []byte("key") }, []string{"client certificate: "}},
		{"a name that does not exist", []string{"https://etcd.invalid:2379"}, nil, []string{"https://etcd.invalid:2379: ", "etcd.invalid"}},
		{"a Service of the namespace", []string{"https://etcd:2379"}, nil, []string{"https://etcd:2379: ", "etcd.team.svc"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := component.EtcdTarget{Endpoints: test.endpoints, Namespace: "team", Prefix: "/registry", Certificate: certificate, Key: key, Authorities: certificate}
			if test.change != nil {
				test.change(&q)
			}
			err := component.CheckEtcd(t.Context(), q)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, without %q", err, part)
				}
			}
		})
	}
}

func TestAnExternalEtcdIsReadyOnlyWhenItAnswers(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	answers := make(chan error)
	etcds := &component.EtcdChecker{Ask: func(_ context.Context, q component.EtcdTarget) error {
		if strings.Join(q.Endpoints, " ") != "https://etcd:2379" || q.Namespace != operatortest.Namespace {
			t.Errorf("asked is %+v", q)
		}
		return <-answers
	}}
	if err := etcds.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w := newWorld(external())
	w.reconciler.EtcdChecker = etcds
	w.reconcile(t)
	w.Issue(t)
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionFalse, "CheckingEtcd", "https://etcd:2379")
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}) // pods wait for etcd themselves

	answers <- errors.New("https://etcd:2379: no such host")
	if request, _ := queue.Get(); request.Name != "kcp" {
		t.Fatalf("woken is %v", request)
	}
	running := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "kcp", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	w.runs(t, set, "kcp-kcp-1", running)
	w.runs(t, set, "kcp-kcp-0", corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "Insufficient cpu"}}})
	rs := w.reconcile(t)
	const why = "waiting for etcd to answer: https://etcd:2379: no such host"
	expect(t, rs, "EtcdReady", metav1.ConditionFalse, "EtcdUnreachable", why)
	expect(t, rs, "Ready", metav1.ConditionFalse, "EtcdUnreachable", why)
	expect(t, rs, "Available", metav1.ConditionFalse, "NoPodReady", "; pod kcp-kcp-1: it waits for etcd; pod kcp-kcp-0: Insufficient cpu")
	if after := w.Reconcile(t, w.reconciler, "kcp").RequeueAfter; after == 0 || after > time.Minute {
		t.Errorf("it asks again after %v", after)
	}

	w.Roll(t, "kcp-kcp")
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionTrue, "", "") // a pod that is ready has asked it
	expect(t, w.reconcile(t), "Ready", metav1.ConditionTrue, "", "")
	if after := w.Reconcile(t, w.reconciler, "kcp").RequeueAfter; after != 0 && after < time.Hour {
		t.Errorf("while pods are ready, it looks again after %v", after)
	}

	set = operatortest.Read(t, w.Cluster, "kcp-kcp", set)
	set.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, set)
	for _, name := range []string{"kcp-kcp-0", "kcp-kcp-1"} {
		w.runs(t, set, name, running)
	}
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionFalse, "CheckingEtcd", "")
	answers <- nil
	queue.Done(reconcile.Request{NamespacedName: operatortest.Key("kcp")})
	queue.Get()
	rs = w.reconcile(t)
	expect(t, rs, "EtcdReady", metav1.ConditionTrue, "", "")
	expect(t, rs, "Available", metav1.ConditionFalse, "NoPodReady", "pod kcp-kcp-0: it runs but is not ready, check its log")
}

// A ready pod proves that the etcd that it uses is available, and no other one.
func TestOnlyPodsWithTheEtcdInTheSpecProveThatItIsAvailable(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *world, *v1alpha1.RootShard){
		"endpoints": func(_ *testing.T, _ *world, rs *v1alpha1.RootShard) {
			rs.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{"https://another:2379"}
		},
		"prefix": func(_ *testing.T, _ *world, rs *v1alpha1.RootShard) { rs.Spec.Etcd.Prefix = "/another" },
		"Secret": func(_ *testing.T, _ *world, rs *v1alpha1.RootShard) {
			rs.Spec.Etcd.TLSConfig.SecretRef.Name = "another"
		},
		"authority": func(t *testing.T, w *world, _ *v1alpha1.RootShard) {
			s := operatortest.Read(t, w.Cluster, "etcd", &corev1.Secret{})
			s.Data["ca.crt"] = []byte("another")
			w.MustUpdate(t, s)
		},
		"no certificate": func(_ *testing.T, _ *world, rs *v1alpha1.RootShard) { rs.Spec.Etcd.TLSConfig = nil },
	} {
		t.Run(name, func(t *testing.T) {
			credentials := func() map[string][]byte {
				return map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")}
			}
			rs := external()
			rs.Spec.Etcd.TLSConfig = &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "etcd"}}
			w := newWorld(rs, secret("etcd", credentials()), secret("another", credentials()))
			w.reconciler.EtcdChecker = &component.EtcdChecker{}
			expect(t, w.settle(t), "EtcdReady", metav1.ConditionTrue, "", "")
			rs = operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
			change(t, w, rs)
			w.MustUpdate(t, rs)
			w.reconcile(t)
			w.counted(t)
			expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionFalse, "CheckingEtcd", "")
		})
	}
}
