package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// standIn does what the other controllers of a cluster, the kubelet and kcp do: it issues certificates, runs pods, and answers for shards.
type standIn struct {
	*operatortest.Cluster
	// kcp has the Shard object of each shard that the operator requests.
	kcp *httptest.Server
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	const path = "/clusters/root/apis/core.kcp.io/v1alpha1/shards/"
	s := &standIn{Cluster: cluster(t, host)}
	s.kcp = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		name, found := strings.CutPrefix(request.URL.Path, path)
		if !found || request.Method != http.MethodGet {
			t.Errorf("kcp gets the request %s %s", request.Method, request.URL.Path)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"baseURL": "https://" + name + "-shard-kcp." + operatortest.Namespace + ".svc.cluster.local:6443"},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		})
	}))
	t.Cleanup(s.kcp.Close)
	s.MustCreate(t, secret("many-servers", map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.kcp.Certificate().Raw})}))
	return s
}

// create creates an installation: a root shard, two shards, a cache server and a front proxy.
func (s *standIn) create(t *testing.T, name string) {
	t.Helper()
	caches := &v1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	proxies := &v1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	proxies.Spec.RootShard.Reference = &v1alpha1.LocalReference{Name: name}
	rs := shard(name)
	rs.Spec.External.Hostname = name + ".example.com"
	rs.Spec.ShardBaseURL, rs.Spec.Etcd.Prefix = s.kcp.URL, "/"+name
	rs.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "many-servers"}
	rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: name}}
	s.MustCreate(t, rs, caches, proxies)
	for _, suffix := range []string{"-east", "-west"} {
		sh := shardOf(name+suffix, name)
		sh.Spec.Etcd.Endpoints, sh.Spec.Etcd.Prefix = []v1alpha1.EtcdEndpoint{etcdEndpoint}, "/"+sh.Name
		s.MustCreate(t, sh)
	}
}

// work issues certificates, and runs the pods of StatefulSets that have changed.
func (s *standIn) work(ctx context.Context, t *testing.T) error {
	t.Helper()
	s.CertifyUnready(t)
	sets := &appsv1.StatefulSetList{}
	if err := s.List(ctx, sets, client.InNamespace(operatortest.Namespace)); err != nil {
		return err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.Status.ObservedGeneration == set.Generation {
			continue
		}
		for ordinal := range *set.Spec.Replicas {
			if err := s.run(ctx, set, ordinal); err != nil {
				return err
			}
		}
		before, n := set.DeepCopy(), *set.Spec.Replicas
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n,
			AvailableReplicas: n}
		if err := s.Status().Patch(ctx, set, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// run replaces a pod of a StatefulSet, or creates it.
func (s *standIn) run(ctx context.Context, set *appsv1.StatefulSet, ordinal int32) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, ordinal),
		Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations}, Spec: set.Spec.Template.Spec}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	if err := s.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		return err
	}
	if err := s.Create(ctx, pod); err != nil {
		return err
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return s.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// unready returns the number of components, and of those that are not ready, and why one of them is not.
func (s *standIn) unready(ctx context.Context, t *testing.T) (all, unready int, why string, err error) {
	for _, list := range []client.ObjectList{&v1alpha1.CacheServerList{}, &v1alpha1.RootShardList{}, &v1alpha1.ShardList{}, &v1alpha1.FrontProxyList{}} {
		if err := s.List(ctx, list, client.InNamespace(operatortest.Namespace)); err != nil {
			return 0, 0, "", err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return 0, 0, "", err
		}
		for _, object := range objects {
			all++
			if err := says(operatortest.Conditions(t, object.(client.Object)), "Ready", "True", "Reconciled"); err != nil {
				unready++
				why = fmt.Sprintf("%T %s: %v", object, object.(client.Object).GetName(), err)
			}
		}
	}
	return all, unready, why, nil
}

// KCP_INSTALLATIONS is the number of installations. If it is set, the test also measures the operator for a minute without changes.
func TestManyInstallationsSettleAndThenNothingIsWritten(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("KCP_INSTALLATIONS"))
	measured := err == nil
	if !measured {
		n = 3
	}
	sweep(t, cluster(t, host))
	s, g := newStandIn(t), newGate(t)
	p := g.start(t, "--metrics-secure=false")
	p.ready(t)
	before := p.usage(t, g)
	for i := range n {
		s.create(t, fmt.Sprintf("many-%d", i))
	}
	for left := 1; left > 0; {
		if err := s.work(t.Context(), t); err != nil {
			t.Fatal(err)
		}
		var why string
		if _, left, why, err = s.unready(t.Context(), t); err != nil {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%d are not ready: %s", left, why)
		case <-time.After(time.Second / 4):
		}
	}
	now, most := p.resident(t)
	t.Logf("%d installations of 3 shards: %v; the operator has %d MiB, and had %d at most", n, p.usage(t, g).since(before), now, most)
	writes := g.quiet(t)
	before = p.usage(t, g)
	if measured {
		time.Sleep(time.Minute)
		t.Logf("in a minute in which nothing changes: %v", p.usage(t, g).since(before))
	}
	if more := g.writes(writes); len(more) != 0 {
		t.Errorf("%d writes, though nothing has changed: %q", len(more), more)
	}
	p.stop(t)
}

// usage is what an operator has used since its start.
type usage struct {
	at                        time.Time
	cpu                       time.Duration
	reads, writes, reconciled int64
}

func (p *process) usage(t *testing.T, g *gate) usage {
	t.Helper()
	return usage{at: time.Now(), cpu: p.cpu(t), reads: g.reads.Load(), writes: int64(len(g.writes(0))), reconciled: int64(reconciled(t, p, ""))}
}

func (u usage) since(before usage) string {
	return fmt.Sprintf("%v, %v of the operator's CPU, %d reconciliations, %d reads and %d writes", u.at.Sub(before.at).Round(time.Second),
		u.cpu-before.cpu, u.reconciled-before.reconciled, u.reads-before.reads, u.writes-before.writes)
}
