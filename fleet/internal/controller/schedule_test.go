package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// drained returns a controller whose namespaces are ready on the cluster east, which is drained to west. One may move in a minute.
func drained(t *testing.T, placement client.Object, names []string) *installed {
	t.Helper()
	objects := []client.Object{placement}
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
	return i
}

func TestMovesBeyondTheLimitWait(t *testing.T) {
	names := []string{"a", "b", "c"}
	i := drained(t, anywhere(), names)
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

func TestBreakBeforeMakeDrainsInItsTurnAndTakesOneTurn(t *testing.T) {
	placement := anywhere().(*v1alpha1.Placement)
	placement.Spec.Move = v1alpha1.BreakBeforeMake
	i := drained(t, placement, []string{"a", "b"})
	for _, want := range []map[string]string{{"east": "draining"}, {"east": "draining"}} {
		if diff := cmp.Diff(want, i.decide(t, "a")); diff != "" {
			t.Errorf("the first namespace (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"east": string(v1alpha1.AssignmentReady)}, i.decide(t, "b")); diff != "" {
			t.Errorf("the second namespace moves without a turn (-want +got):\n%s", diff)
		}
	}
	i.agentReports(t, "a", "east", v1alpha1.AssignmentGone)
	if _, created := i.decide(t, "a")["west"]; !created {
		t.Error("the first namespace waits for a second turn")
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

func TestABoundVolumeKeepsANamespaceAndThePlacementSaysSo(t *testing.T) {
	i := install(t, []client.Object{readyCluster("east"), readyCluster("west")}, []client.Object{userNamespace("shop"), anywhere()})
	i.change(t, "west", func(c *v1alpha1.Cluster) { c.Spec.Cordon = true })
	i.decide(t, "shop")
	i.agentReports(t, "shop", "east", v1alpha1.AssignmentReady)
	claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"}}, "status": map[string]any{"phase": "Bound"}}}
	key := feed.Key{Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Name: "data"}
	i.index.SetObject(i.w.in("shop"), key, claim)
	i.change(t, "west", func(c *v1alpha1.Cluster) { c.Spec.Cordon = false })
	i.change(t, "east", func(c *v1alpha1.Cluster) { c.Spec.Drain = true })
	if diff := cmp.Diff(map[string]string{"east": "Ready"}, i.decide(t, "shop")); diff != "" {
		t.Errorf("assignments (-want +got):\n%s", diff)
	}
	if c := i.scheduled(t); c.Status != metav1.ConditionFalse || c.Reason != "VolumeBound" || !strings.Contains(c.Message, `Claim "data"`) {
		t.Errorf("the condition is %v", c)
	}
	i.index.SetObject(i.w.in("shop"), key, nil)
	if diff := cmp.Diff(map[string]string{"east": "Ready", "west": ""}, i.decide(t, "shop")); diff != "" {
		t.Errorf("assignments after the claim was deleted (-want +got):\n%s", diff)
	}
	if c := i.scheduled(t); c.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %v", c)
	}
}

func TestAPlacementShowsWhatAClusterRefuses(t *testing.T) {
	i := install(t, []client.Object{readyCluster("east")}, []client.Object{userNamespace("a"), userNamespace("b"), anywhere()})
	key := feed.Key{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Name: "settings"}
	refuse := func(namespace, message string) {
		t.Helper()
		list, err := i.index.Feed("east").List(t.Context(), metav1.ListOptions{
			LabelSelector: "fleet.kcp.io/assignment=" + feed.AssignmentName("w", namespace, "east"),
		})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d workloads: %v", len(list.Items), err)
		}
		u := &list.Items[0]
		u.Object["status"] = map[string]any{"message": message}
		if _, err := i.index.Feed("east").Update(t.Context(), u, metav1.UpdateOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		if _, err := i.writeStatus(t.Context(), object{i.w.in(namespace), key}); err != nil {
			t.Fatal(err)
		}
	}
	shown := func() string {
		t.Helper()
		p := &v1alpha1.Placement{}
		if err := i.w.Get(t.Context(), client.ObjectKey{Name: "all"}, p); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementApplied)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Message
	}
	for _, namespace := range []string{"a", "b"} {
		i.decide(t, namespace)
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		u.SetName("settings")
		i.index.SetObject(i.w.in(namespace), key, u)
	}
	refuse("b", "quota exceeded")
	refuse("a", "denied")
	if got, want := shown(), `False namespace "a": configmaps settings: cluster "east": denied`; got != want {
		t.Errorf("the condition is %s, want %s", got, want)
	}
	refuse("a", "")
	if got, want := shown(), `False namespace "b": configmaps settings: cluster "east": quota exceeded`; got != want {
		t.Errorf("the condition is %s, want %s", got, want)
	}
	i.index.SetObject(i.w.in("b"), key, nil) // the user deletes it
	if _, err := i.writeStatus(t.Context(), object{i.w.in("b"), key}); err != nil {
		t.Fatal(err)
	}
	if got, want := shown(), "True the clusters have accepted all objects"; got != want {
		t.Errorf("the condition is %s, want %s", got, want)
	}
	if len(i.problems.found) > 0 {
		t.Errorf("problems are remembered: %v", i.problems.found)
	}
}
