// Package etcd proves on a real Kubernetes that an etcd which the operator makes lives through what happens to pods and
// volumes, and loses no write that it acknowledged.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator"
	"github.com/kcplane/kcp/operator/etcdcluster"
	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

var host *hosttest.Host

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	hosttest.Main(m, &host)
}

const manifest = `
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: x}
spec:
  replicas: 1
  version: ` + before + `
  storage: {size: 64Mi}
`

// before is a version of the minor before that of the operator.
const before = "3.6.16"

// site is an EtcdCluster named x in a namespace of its own, with an operator that looks after this namespace only.
type site struct {
	*hosttest.Namespace
	t      *testing.T
	client client.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	snapshots := hosttest.Build(t.Context(), t, "../../../../operator/cmd/etcd-snapshot") + "=/etcd-snapshot"
	member := hosttest.Build(t.Context(), t, "../../../../operator/cmd/etcd-member")
	host.Load(t, "localhost/etcd:v"+etcdcluster.DefaultVersion, "/etcd", member+"=/etcd", snapshots)
	older := hosttest.Build(t.Context(), t, "../../../../operator/cmd/etcd-member", "-modfile=../../../host/etcd/v3.6.mod")
	host.Load(t, "localhost/etcd:v"+before, "/etcd", older+"=/etcd", snapshots)
	n := host.Namespace(t)
	n.Kubectl(t, "label", "namespace", n.Name, "pod-security.kubernetes.io/enforce=restricted")
	n.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--filename=../../../../config/crd/bases")
	n.Kubectl(t, "wait", "--for=condition=Established", "--timeout=1m", "crd/etcdclusters.operator.kcp.io",
		"crd/kubeconfigs.operator.kcp.io", "crd/rootshards.operator.kcp.io", "crd/etcdbackups.operator.kcp.io")
	config, err := clientcmd.BuildConfigFromFlags("", host.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	runOperator(t, n.Name)
	return &site{Namespace: n, t: t, client: c}
}

// runOperator runs the operator on the machine, from where it reaches pods at their addresses.
func runOperator(t *testing.T, namespace string) {
	t.Helper()
	program := hosttest.Build(t.Context(), t, "../../../../operator/cmd/kcp-operator")
	log, err := os.Create(filepath.Join(t.TempDir(), "operator.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--health-probe-bind-address=0", "--etcd-repository=localhost/etcd")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+host.Kubeconfig, "WATCH_NAMESPACE="+namespace)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the operator's log ends with:\n%s", text[max(0, len(text)-6000):])
		}
	})
}

func (s *site) cluster() *v1alpha1.EtcdCluster {
	s.t.Helper()
	c := &v1alpha1.EtcdCluster{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.Name, Name: "x"}, c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *site) until(what string, so func(*v1alpha1.EtcdCluster) bool) *v1alpha1.EtcdCluster {
	s.t.Helper()
	for {
		c := s.cluster()
		if so(c) {
			return c
		}
		if end, limited := s.t.Deadline(); limited && time.Until(end) < time.Minute {
			s.t.Fatalf("%s never came; at last: %+v\n%s", what, c.Status, s.Kubectl(s.t, "get", "pods,events", "--output=wide"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// isReady reports whether a cluster is as it was last asked to be, with a number of members.
func isReady(c *v1alpha1.EtcdCluster, members int) bool {
	ready := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == "True" && ready.ObservedGeneration == c.Generation && len(c.Status.Members) == members
}

func (s *site) ready(members int) *v1alpha1.EtcdCluster {
	s.t.Helper()
	return s.until(fmt.Sprintf("a cluster of %d", members), func(c *v1alpha1.EtcdCluster) bool { return isReady(c, members) })
}

func (s *site) pod(name string) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.Name, Name: name}, p); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return p
}

// replaced waits until a pod is another one, and the cluster is well.
func (s *site) replaced(name string, old types.UID) {
	s.t.Helper()
	s.until("another pod "+name, func(c *v1alpha1.EtcdCluster) bool {
		p := s.pod(name)
		ready := false
		for _, condition := range p.Status.Conditions {
			ready = ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}
		return p.UID != "" && p.UID != old && ready && isReady(c, 3)
	})
}

// member returns the name of the leader, or of one that follows.
func (s *site) member(leads bool) string {
	s.t.Helper()
	name := ""
	s.until("a leader", func(c *v1alpha1.EtcdCluster) bool {
		for _, m := range c.Status.Members {
			if m.IsLeader == leads {
				name = m.Name
			}
		}
		return name != "" && c.Status.Leader != ""
	})
	return name
}

// etcd returns a client of a cluster as consumers have it, through the Service.
func (s *site) etcd(cluster string) *clientv3.Client {
	s.t.Helper()
	secret, service := &corev1.Secret{}, &corev1.Service{}
	for _, what := range []struct {
		name   string
		object client.Object
	}{{etcdcluster.ClientSecretName(cluster), secret}, {etcdcluster.ClientServiceName(cluster), service}} {
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.Name, Name: what.name}, what.object); err != nil {
			s.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	dial := func(ctx context.Context, _ string) (net.Conn, error) { // its name is known inside of the cluster only
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(etcdcluster.ClientPort)))
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{fmt.Sprintf("https://%s.%s.svc:%d", service.Name, s.Name, etcdcluster.ClientPort)},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}, Logger: zap.NewNop(),
		TLS:         &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
		DialTimeout: 2 * time.Second, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// writer writes all the time, and remembers what was acknowledged, and when nothing was.
type writer struct {
	client       *clientv3.Client
	stop         context.CancelFunc
	done         chan struct{}
	acknowledged []string
	longest      chan time.Duration
}

func (s *site) write() *writer {
	ctx, stop := context.WithCancel(s.t.Context())
	w := &writer{client: s.etcd("x"), stop: stop, done: make(chan struct{}), longest: make(chan time.Duration)}
	go func() {
		defer close(w.done)
		last, gap := time.Now(), time.Duration(0)
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("/written/%08d", n)
			timed, cancel := context.WithTimeout(ctx, time.Second)
			_, err := w.client.Put(timed, key, key)
			cancel()
			if err == nil {
				w.acknowledged = append(w.acknowledged, key)
				gap, last = max(gap, time.Since(last)), time.Now()
			}
			select {
			case w.longest <- max(gap, time.Since(last)):
				gap = 0
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return w
}

// during does something, and tells for how long no write was acknowledged meanwhile.
func (w *writer) during(t *testing.T, what string, do func()) {
	t.Helper()
	<-w.longest
	start := time.Now()
	do()
	t.Logf("%s: done after %s, for at most %s no write was acknowledged", what, time.Since(start).Round(time.Millisecond), (<-w.longest).Round(time.Millisecond))
}

// verify ends the writes, and looks for each of those that were acknowledged.
func (w *writer) verify(t *testing.T) {
	t.Helper()
	w.stop()
	<-w.done
	got, err := w.client.Get(t.Context(), "/written/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, kv := range got.Kvs {
		there[string(kv.Key)] = true
	}
	lost := 0
	for _, key := range w.acknowledged {
		if !there[key] {
			lost++
		}
	}
	t.Logf("%d writes were acknowledged", len(w.acknowledged))
	if lost > 0 || len(w.acknowledged) == 0 {
		t.Errorf("%d of %d acknowledged writes are lost", lost, len(w.acknowledged))
	}
}

func TestAnEtcdLivesThroughWhatHappensToPodsAndVolumes(t *testing.T) {
	s := newSite(t)
	s.Apply(t, manifest)
	start := time.Now()
	s.ready(1)
	t.Logf("1 member is ready after %s", time.Since(start).Round(time.Second))
	w := s.write()
	scale := func(members int) {
		w.during(t, fmt.Sprintf("scaling to %d", members), func() {
			s.Kubectl(t, "patch", "etcdcluster", "x", "--type=merge", fmt.Sprintf(`--patch={"spec":{"replicas":%d}}`, members))
			s.ready(members)
		})
	}
	scale(3)
	scale(5)
	scale(3)
	for _, leads := range []bool{false, true} {
		name := s.member(leads)
		role := map[bool]string{false: "follower", true: "leader"}[leads]
		w.during(t, "deleting the pod of the "+role, func() {
			old := s.pod(name).UID
			s.Kubectl(t, "delete", "pod", name, "--wait=false")
			s.replaced(name, old)
		})
		name = s.member(leads)
		w.during(t, "killing the pod of the "+role, func() {
			old := s.pod(name).UID
			s.Kubectl(t, "delete", "pod", name, "--grace-period=0", "--force")
			s.replaced(name, old)
		})
		name = s.member(leads)
		w.during(t, "deleting the volume of the "+role, func() {
			old := s.pod(name).UID
			s.Kubectl(t, "delete", "pvc", "data-"+name, "--wait=false")
			s.Kubectl(t, "delete", "pod", name, "--wait=false")
			s.replaced(name, old)
		})
	}
	w.verify(t)
}

func TestAnEtcdIsUpgradedByAMinorAndBeginsAgainWithASnapshot(t *testing.T) {
	s := newSite(t)
	s.Apply(t, manifest)
	s.Kubectl(t, "patch", "etcdcluster", "x", "--type=merge", `--patch={"spec":{"replicas":3}}`)
	s.ready(3)
	w := s.write()
	w.during(t, "an upgrade by a minor", func() {
		s.Kubectl(t, "patch", "etcdcluster", "x", "--type=merge", `--patch={"spec":{"version":"`+etcdcluster.DefaultVersion+`"}}`)
		s.until("the next version", func(c *v1alpha1.EtcdCluster) bool {
			return isReady(c, 3) && c.Status.CurrentVersion == etcdcluster.DefaultVersion
		})
	})
	w.verify(t)
	s.restores(w)
}

// restores takes a snapshot, and begins another cluster with it.
func (s *site) restores(w *writer) {
	s.t.Helper()
	s.Apply(s.t, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: snapshots}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdBackup
metadata: {name: now}
spec:
  cluster: x
  store: {volume: {claimName: snapshots}}
`)
	s.Kubectl(s.t, "wait", "--for=condition=Ready", "etcdbackup/now", "--timeout=3m")
	key := s.Kubectl(s.t, "get", "etcdbackup", "now", "--output=jsonpath={.status.snapshot.key}")
	s.Apply(s.t, `
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: again}
spec:
  replicas: 1
  storage: {size: 64Mi}
  restore:
    key: `+key+`
    store: {volume: {claimName: snapshots}}
`)
	s.Kubectl(s.t, "wait", "--for=condition=Ready", "etcdcluster/again", "--timeout=5m")
	client := s.etcd("again")
	got, err := client.Get(s.t.Context(), "/written/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count < int64(len(w.acknowledged)) {
		s.t.Errorf("%v of %d keys are restored: %v", got, len(w.acknowledged), err)
	}
}
