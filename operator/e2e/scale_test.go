package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// KCP_ROOTSHARDS is the number of RootShards. If it is set, the test also measures the operator for a minute without changes.
func TestManyRootShardsSettleAndThenNothingIsWritten(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("KCP_ROOTSHARDS"))
	measured := err == nil
	if !measured {
		n = 10
	}
	admin, g := cluster(t, host), newGate(t)
	sweep(t, admin)
	p := g.start(t, "--metrics-secure=false")
	p.ready(t)
	began, reads, writes := time.Now(), g.reads.Load(), len(g.writes(0))
	for i := range n {
		admin.MustCreate(t, shard(fmt.Sprintf("many-%d", i)))
	}
	for err := settled(t.Context(), t, admin); err != nil; err = settled(t.Context(), t, admin) {
		select {
		case <-t.Context().Done():
			t.Fatalf("they are not Ready: %v", err)
		case <-time.After(time.Second / 4):
		}
	}
	now, most := p.resident(t)
	cpu := p.cpu(t)
	t.Logf("%d RootShards took %v, %v of the operator's CPU, %d reads and %d writes; it has %d MiB, and had %d at most", n,
		time.Since(began).Round(time.Second), cpu, g.reads.Load()-reads, len(g.writes(writes)), now, most)
	writes = g.quiet(t)
	if measured {
		reads = g.reads.Load()
		time.Sleep(time.Minute)
		t.Logf("in a minute in which nothing changes: %v of CPU, %d reads and %d writes", p.cpu(t)-cpu, g.reads.Load()-reads, len(g.writes(writes)))
		cpu = p.cpu(t)
		if more := g.writes(writes); len(more) != 0 {
			t.Errorf("%d writes, though nothing has changed: %q", len(more), more)
		}
	}
	before := reconciled(t, p, `rootshard"`)
	reads, began = g.reads.Load(), time.Now()
	services := &corev1.ServiceList{}
	if err := admin.List(t.Context(), services, client.InNamespace(operatortest.Namespace), client.MatchingLabels{
		apply.ManagedByLabel: apply.FieldOwner, "app.kubernetes.io/component": "rootshard"}); err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		change(t, admin, services.Items[i].Name, &corev1.Service{}, func(s *corev1.Service) { s.Annotations["theirs"] = "changed" })
	}
	for more := 0.0; more < float64(len(services.Items)); more = reconciled(t, p, `rootshard"`) - before {
		select {
		case <-t.Context().Done():
			t.Fatalf("%v of %d were reconciled again", more, len(services.Items))
		case <-time.After(time.Second / 10):
		}
	}
	t.Logf("%d RootShards were reconciled again in %v, with %v of CPU and %d reads", len(services.Items),
		time.Since(began).Round(time.Second/10), p.cpu(t)-cpu, g.reads.Load()-reads)
	if more := g.writes(writes); len(more) != 0 {
		t.Errorf("%d writes, though nothing of what is wanted has changed: %q", len(more), more)
	}
	p.stop(t)
}

// sweep deletes objects of other tests, and their owned objects like a garbage collector.
func sweep(t *testing.T, admin *operatortest.Cluster) {
	t.Helper()
	namespace := client.InNamespace(operatortest.Namespace)
	for _, list := range []client.ObjectList{&v1alpha1.KubeconfigList{}, &v1alpha1.ShardList{}, &v1alpha1.RootShardList{}} { // with finalizers
		if err := admin.List(t.Context(), list, namespace); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			return admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []client.Object{
		&v1alpha1.FrontProxy{}, &v1alpha1.VirtualWorkspace{}, &v1alpha1.Shard{}, &v1alpha1.RootShard{}, &v1alpha1.CacheServer{},
		&v1alpha1.EtcdCluster{}, &v1alpha1.Kubeconfig{}, &appsv1.StatefulSet{}, &corev1.Service{}, &corev1.Secret{},
		&policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{}, &certmanager.Certificate{}, &certmanager.Issuer{},
	} {
		if err := admin.DeleteAllOf(t.Context(), kind, namespace); err != nil {
			t.Fatalf("%T: %v", kind, err)
		}
	}
}

// settled simulates the other controllers of a cluster once, and reports whether there was nothing to do.
func settled(ctx context.Context, t *testing.T, admin *operatortest.Cluster) error {
	admin.Issue(t)
	sets := &appsv1.StatefulSetList{}
	if err := admin.List(ctx, sets, client.InNamespace(operatortest.Namespace)); err != nil {
		return err
	}
	for i := range sets.Items {
		if set := &sets.Items[i]; set.Status.ObservedGeneration < set.Generation {
			admin.Roll(t, set.Name)
		}
	}
	list := &v1alpha1.RootShardList{}
	if err := admin.List(ctx, list, client.InNamespace(operatortest.Namespace)); err != nil {
		return err
	}
	var waiting []string
	for _, rs := range list.Items {
		if says(rs.Status.Conditions, "Ready", "True", "Reconciled") != nil {
			waiting = append(waiting, rs.Name)
		}
	}
	if len(waiting) > 0 {
		return fmt.Errorf("%d of %d are not: %.200s", len(waiting), len(list.Items), strings.Join(waiting, " "))
	}
	return nil
}

// reconciled returns the number of reconciliations by a controller. Empty: by all.
func reconciled(t *testing.T, p *process, controller string) float64 {
	t.Helper()
	sum := 0.0
	for labels, value := range p.series(t, "controller_runtime_reconcile_total") {
		if strings.Contains(labels, `controller="`+controller) {
			sum += value
		}
	}
	return sum
}
