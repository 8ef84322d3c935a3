package operator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/apply"
	"github.com/kcplane/kcp/operator/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// writes counts the requests of a client that write.
type writes struct {
	next  http.RoundTripper
	count *atomic.Int64
}

func (w writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		w.count.Add(1)
	}
	return w.next.RoundTrip(r)
}

// KCP_ROOTSHARDS is how many there are.
func TestManyRootShardsSettleAndThenNothingIsWritten(t *testing.T) {
	n := 10
	if given, err := strconv.Atoi(os.Getenv("KCP_ROOTSHARDS")); err == nil {
		n = given
	}
	admin := cluster(t, host)
	var written atomic.Int64
	config := asOperator()
	config.QPS, config.Burst = 100, 200
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return writes{next, &written} })
	start(t, config)
	began := time.Now()
	for i := range n {
		if err := admin.Create(t.Context(), shard(fmt.Sprintf("many-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	for err := settled(t.Context(), t, admin, n); err != nil; err = settled(t.Context(), t, admin, n) {
		select {
		case <-t.Context().Done():
			t.Fatalf("they are not Ready: %v", err)
		case <-time.After(time.Second / 4):
		}
	}
	t.Logf("%d RootShards took %v and %d writes", n, time.Since(began).Round(time.Second), written.Load())

	before := reconciled(t)
	written.Store(0)
	services := &corev1.ServiceList{}
	if err := admin.List(t.Context(), services, client.InNamespace(operatortest.Namespace), client.MatchingLabels{apply.ManagedByLabel: apply.FieldOwner}); err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		service.Annotations["theirs"] = "changed"
		if err := admin.Update(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	kcptest.Eventually(t, "all were reconciled again", func(context.Context) error {
		if more := reconciled(t) - before; more < float64(len(services.Items)) {
			return fmt.Errorf("%v of %d", more, len(services.Items))
		}
		return nil
	})
	if got := written.Load(); got != 0 {
		t.Errorf("%d writes, though nothing of what is wanted has changed", got)
	}
}

// settled does what others do in a cluster, and tells whether that was all.
func settled(ctx context.Context, t *testing.T, admin *operatortest.Cluster, n int) error {
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
	ready := 0
	for _, rs := range list.Items {
		if says(rs.Status.Conditions, "Ready", "True", "Ready") == nil {
			ready++
		}
	}
	if ready < len(list.Items) || ready < n {
		return fmt.Errorf("%d of %d are", ready, len(list.Items))
	}
	return nil
}

// reconciled is how often RootShards were, in this process.
func reconciled(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == "rootshard" {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
