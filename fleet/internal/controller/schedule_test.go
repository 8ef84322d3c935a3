package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/feed"
)

func (i *installed) scheduled(t *testing.T) *metav1.Condition {
	t.Helper()
	p := &v1alpha1.Placement{}
	if err := i.w.Get(t.Context(), client.ObjectKey{Name: "all"}, p); err != nil {
		t.Fatal(err)
	}
	return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementScheduled)
}

func TestANamespaceIsAssignedWhenAPlacementSelectsIt(t *testing.T) {
	i := install(t, []client.Object{readyCluster("east")}, []client.Object{userNamespace("shop"), userNamespace("kube-system")})
	if got := i.decide(t, "shop"); len(got) > 0 {
		t.Errorf("without a Placement, it is assigned to %v", got)
	}
	if err := i.w.Client.Create(t.Context(), anywhere()); err != nil {
		t.Fatal(err)
	}
	if got := i.decide(t, "shop"); cmp.Diff(got, map[string]string{"east": ""}) != "" {
		t.Errorf("it is assigned to %v", got)
	}
	if got := i.decide(t, "kube-system"); len(got) > 0 {
		t.Errorf("a namespace of the system is assigned to %v", got)
	}
	if c := i.scheduled(t); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %v", c)
	}
}

func TestAPlacementSaysWhyANamespaceHasNoCluster(t *testing.T) {
	i := install(t, []client.Object{readyCluster("east")}, []client.Object{userNamespace("shop"), anywhere()})
	i.change(t, "east", func(c *v1alpha1.Cluster) { c.Spec.Cordon = true })
	if got := i.decide(t, "shop"); len(got) > 0 {
		t.Errorf("it is assigned to %v", got)
	}
	if c := i.scheduled(t); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "east is cordoned") {
		t.Errorf("the condition is %v", c)
	}
}

func TestAMoveKeepsTheFormerCopyAndWritesNothingToTheWorkspace(t *testing.T) {
	i := install(t, []client.Object{readyCluster("east"), readyCluster("west")}, []client.Object{userNamespace("shop"), anywhere()})
	i.change(t, "west", func(c *v1alpha1.Cluster) { c.Spec.Cordon = true })
	i.decide(t, "shop")
	i.agentReports(t, "shop", "east", v1alpha1.AssignmentReady)
	i.decide(t, "shop")
	before := i.w.writes.Load()
	i.change(t, "west", func(c *v1alpha1.Cluster) { c.Spec.Cordon = false })
	i.change(t, "east", func(c *v1alpha1.Cluster) { c.Spec.Drain = true })
	for _, step := range []struct {
		do   func()
		want map[string]string
	}{
		{func() {}, map[string]string{"east": "Ready", "west": ""}},
		{func() { i.agentReports(t, "shop", "west", v1alpha1.AssignmentPlacing) }, map[string]string{"east": "Ready", "west": "Placing"}},
		{func() { i.agentReports(t, "shop", "west", v1alpha1.AssignmentReady) }, map[string]string{"east": "draining", "west": "Ready"}},
		{func() { i.agentReports(t, "shop", "east", v1alpha1.AssignmentGone) }, map[string]string{"west": "Ready"}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, i.decide(t, "shop")); diff != "" {
			t.Errorf("assignments (-want +got):\n%s", diff)
		}
	}
	if n := i.w.writes.Load() - before; n > 0 {
		t.Errorf("the move wrote %d times to the workspace", n)
	}
}

func TestMovesBeyondTheLimitWait(t *testing.T) {
	names := []string{"a", "b", "c"}
	objects := []client.Object{anywhere()}
	for _, name := range names {
		objects = append(objects, userNamespace(name))
	}
	i := install(t, []client.Object{readyCluster("east")}, objects)
	for _, name := range names {
		i.decide(t, name)
		i.agentReports(t, name, "east", v1alpha1.AssignmentReady)
	}
	if err := i.provider.Create(t.Context(), readyCluster("west")); err != nil {
		t.Fatal(err)
	}
	i.change(t, "east", func(c *v1alpha1.Cluster) { c.Spec.Drain = true })
	i.moves = newTurns(1)
	moved := 0
	for _, name := range names {
		if _, ok := i.decide(t, name)["west"]; ok {
			moved++
		}
	}
	if moved != 1 {
		t.Errorf("%d namespaces moved at once, with a limit of 1 in a minute", moved)
	}
	again, err := i.schedule(t.Context(), i.w.in("c"))
	if err != nil || again < shortestWait || again > longestWait {
		t.Errorf("one that waits is decided on again after %s: %v", again, err)
	}
}

// BenchmarkDecisionWithTenThousandAssignments reports the 99th percentile of the time that a decision takes. The goal is one second.
func BenchmarkDecisionWithTenThousandAssignments(b *testing.B) {
	const assignments = 10000
	i := install(b, []client.Object{readyCluster("east"), readyCluster("west")}, []client.Object{anywhere()})
	for n := range assignments {
		name := fmt.Sprint("old-", n)
		a := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: feed.AssignmentName("other", name, "east")}}
		a.Spec = v1alpha1.AssignmentSpec{Workspace: "other", Namespace: name, Cluster: "east", Endpoint: endpoint}
		i.index.SetAssignment(a)
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		name := fmt.Sprint("new-", len(took))
		if err := i.w.Create(b.Context(), userNamespace(name)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		start := time.Now()
		if _, err := i.schedule(b.Context(), i.w.in(name)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
