package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// cluster returns a cluster that is ready.
func cluster(name string, options ...func(*v1alpha1.Cluster)) v1alpha1.Cluster {
	c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
	for _, option := range options {
		option(&c)
	}
	return c
}

func lostFor(d time.Duration) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Status.Conditions[0].Status, c.Status.Conditions[0].LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(now.Add(-d))
	}
}

func cordoned(c *v1alpha1.Cluster) { c.Spec.Cordon = true }

func drained(c *v1alpha1.Cluster) { c.Spec.Drain = true }

func tainted(effect corev1.TaintEffect) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) { c.Spec.Taints = []v1alpha1.Taint{{Key: "gpu", Effect: effect}} }
}

// assigned returns an assignment that is ready.
func assigned(cluster string, options ...func(*v1alpha1.Assignment)) v1alpha1.Assignment {
	a := v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: cluster, Generation: 1}, Spec: v1alpha1.AssignmentSpec{Cluster: cluster}}
	a.Status = v1alpha1.AssignmentStatus{Phase: v1alpha1.AssignmentReady, ObservedGeneration: 1}
	for _, option := range options {
		option(&a)
	}
	return a
}

func placing(a *v1alpha1.Assignment) { a.Status.Phase = v1alpha1.AssignmentPlacing }

func outdated(a *v1alpha1.Assignment) { a.Generation = 2 }

func draining(a *v1alpha1.Assignment) { a.Spec.Draining = true }

func gone(a *v1alpha1.Assignment) {
	a.Spec.Draining, a.Status.Phase = true, v1alpha1.AssignmentGone
}

func share(offset, weight, total int64) *v1alpha1.Share {
	return &v1alpha1.Share{Offset: offset, Weight: weight, Total: total}
}

func sharing(s *v1alpha1.Share) func(*v1alpha1.Assignment) {
	return func(a *v1alpha1.Assignment) { a.Spec.Share = s }
}

func single(options ...func(*v1alpha1.PlacementSpec)) *v1alpha1.PlacementSpec {
	p := &v1alpha1.PlacementSpec{Strategy: v1alpha1.Single, Move: v1alpha1.MakeBeforeBreak}
	for _, option := range options {
		option(p)
	}
	return p
}

func only(name string) func(*v1alpha1.PlacementSpec) {
	return func(p *v1alpha1.PlacementSpec) {
		p.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
	}
}

func breaking(p *v1alpha1.PlacementSpec) { p.Move = v1alpha1.BreakBeforeMake }

func spread(p *v1alpha1.PlacementSpec) { p.Strategy = v1alpha1.Spread }

func tolerating(t v1alpha1.Toleration) func(*v1alpha1.PlacementSpec) {
	return func(p *v1alpha1.PlacementSpec) { p.Tolerations = append(p.Tolerations, t) }
}

func leavingAfter(seconds int64) func(*v1alpha1.PlacementSpec) {
	return tolerating(v1alpha1.Toleration{Key: v1alpha1.NotReadyTaint, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
}

type (
	cs = []v1alpha1.Cluster
	as = []v1alpha1.Assignment
)

func TestDecisions(t *testing.T) {
	whole := map[string]*v1alpha1.Share{"b": nil}
	for name, test := range map[string]struct {
		placement   *v1alpha1.PlacementSpec
		clusters    cs
		assignments as
		want        Decision
	}{
		"nothing without a placement":     {nil, cs{cluster("a")}, nil, Decision{}},
		"a placement that is gone drains": {nil, cs{cluster("a")}, as{assigned("a")}, Decision{Drain: []string{"a"}}},
		"the selected cluster is used":    {single(only("b")), cs{cluster("a"), cluster("b")}, nil, Decision{Create: whole}},
		"a placed namespace stays":        {single(), cs{cluster("a"), cluster("b")}, as{assigned("a")}, Decision{}},
		"cordon keeps what is there":      {single(), cs{cluster("a", cordoned), cluster("b")}, as{assigned("a")}, Decision{}},
		"cordon refuses what is new":      {single(), cs{cluster("a", cordoned), cluster("b")}, nil, Decision{Create: whole}},
		"NoSchedule keeps what is there": {
			single(), cs{cluster("a", tainted(corev1.TaintEffectNoSchedule)), cluster("b")}, as{assigned("a")},
			Decision{},
		},
		"NoSchedule refuses what is new": {
			single(), cs{cluster("a", tainted(corev1.TaintEffectNoSchedule)), cluster("b")}, nil,
			Decision{Create: whole},
		},
		"NoExecute moves what is there": {
			single(), cs{cluster("a", tainted(corev1.TaintEffectNoExecute)), cluster("b")}, as{assigned("a")},
			Decision{Create: whole, Moves: true},
		},
		"a tolerated taint is ignored": {
			single(only("a"), tolerating(v1alpha1.Toleration{Key: "gpu"})), cs{cluster("a", tainted(corev1.TaintEffectNoExecute))},
			as{assigned("a")},
			Decision{},
		},
		"drain makes before it breaks": {
			single(), cs{cluster("a", drained), cluster("b")}, as{assigned("a")},
			Decision{Create: whole, Moves: true},
		},
		"the former copy waits for the new one": {
			single(), cs{cluster("a", drained), cluster("b")}, as{assigned("a"), assigned("b", placing)},
			Decision{},
		},
		"a report for an older share is not new": {
			single(), cs{cluster("a", drained), cluster("b")}, as{assigned("a"), assigned("b", outdated)},
			Decision{},
		},
		"a ready copy replaces the former": {
			single(), cs{cluster("a", drained), cluster("b")}, as{assigned("a"), assigned("b")},
			Decision{Drain: []string{"a"}},
		},
		"nothing is dropped if nothing fits": {single(), cs{cluster("a", drained)}, as{assigned("a")},
			Decision{Unscheduled: "no cluster fits: a is drained"}},
		"no cluster matches": {single(only("c")), cs{cluster("a")}, nil, Decision{Unscheduled: "no cluster matches the clusterSelector"}},
		"a move that is taken back drains the new copy": {single(only("a")), cs{cluster("a"), cluster("b")},
			as{assigned("a"), assigned("b", placing)}, Decision{Drain: []string{"b"}}},
		"break before make drains first": {
			single(breaking), cs{cluster("a", drained), cluster("b")}, as{assigned("a")},
			Decision{Drain: []string{"a"}, Moves: true},
		},
		"break before make keeps what has no other cluster": {
			single(breaking), cs{cluster("a", drained), cluster("b", cordoned)}, as{assigned("a")},
			Decision{Unscheduled: "no cluster fits: a is drained, b is cordoned"},
		},
		"break before make waits": {
			single(breaking), cs{cluster("a", drained), cluster("b")}, as{assigned("a", draining)},
			Decision{},
		},
		"break before make continues": {single(breaking), cs{cluster("a", drained), cluster("b")}, as{assigned("a", gone)},
			Decision{Create: whole, Delete: []string{"a"}}},
		"a lost cluster keeps its namespaces": {single(), cs{cluster("a", lostFor(time.Hour)), cluster("b")}, as{assigned("a")}, Decision{}},
		"a lost cluster takes nothing new": {
			single(), cs{cluster("a", lostFor(time.Second)), cluster("b")}, nil,
			Decision{Create: whole},
		},
		"a toleration with a time waits": {
			single(leavingAfter(60)), cs{cluster("a", lostFor(20*time.Second)), cluster("b")}, as{assigned("a")},
			Decision{Again: 40 * time.Second}},
		"a toleration with a time moves": {single(leavingAfter(60)), cs{cluster("a", lostFor(time.Minute)), cluster("b")}, as{assigned("a")},
			Decision{Create: whole, Moves: true}},
		"an assignment without a cluster is deleted when it drains": {
			single(only("b")), cs{cluster("b")}, as{assigned("a", draining), assigned("b")},
			Decision{Delete: []string{"a"}}},
		"spread uses all clusters": {single(spread), cs{cluster("a"), cluster("b")}, nil,
			Decision{Create: map[string]*v1alpha1.Share{"a": share(0, 1, 2), "b": share(1, 1, 2)}}},
		"a new cluster grows before others shrink": {
			single(spread), cs{cluster("a"), cluster("b")}, as{assigned("a", sharing(share(0, 1, 1)))},
			Decision{Create: map[string]*v1alpha1.Share{"b": share(1, 1, 2)}}},
		"others shrink when it is ready": {single(spread), cs{cluster("a"), cluster("b")},
			as{assigned("a", sharing(share(0, 1, 1))), assigned("b", sharing(share(1, 1, 2)))},
			Decision{Share: map[string]*v1alpha1.Share{"a": share(0, 1, 2)}}},
		"others grow before a drained cluster is left": {single(spread), cs{cluster("a"), cluster("b", drained)},
			as{assigned("a", sharing(share(0, 1, 2))), assigned("b", sharing(share(1, 1, 2)))},
			Decision{Share: map[string]*v1alpha1.Share{"a": share(0, 1, 1)}}},
		"a drained cluster is left when others have grown": {single(spread), cs{cluster("a"), cluster("b", drained)},
			as{assigned("a", sharing(share(0, 1, 1))), assigned("b", sharing(share(1, 1, 2)))}, Decision{Drain: []string{"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(Snapshot{Key: "w/n", Placement: test.placement, Clusters: test.clusters, Assignments: test.assignments, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Create) == 0 {
				got.Create = nil
			}
			if len(got.Share) == 0 {
				got.Share = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABoundVolumePinsTheCopyThatUsesIt(t *testing.T) {
	const stays = `stays on cluster "a", which holds the volume of PersistentVolumeClaim "data": ` +
		`delete the claim to let the namespace move without its content`
	weighted := func(p *v1alpha1.PlacementSpec) {
		spread(p)
		p.Spread = &v1alpha1.SpreadSpec{Weights: map[string]v1alpha1.Weight{"a": 0}}
	}
	for name, test := range map[string]struct {
		placement   *v1alpha1.PlacementSpec
		clusters    cs
		assignments as
		want        Decision
	}{
		"when its cluster is drained":      {single(), cs{cluster("a", drained), cluster("b")}, as{assigned("a")}, Decision{Pinned: stays}},
		"when another cluster is selected": {single(only("b")), cs{cluster("a"), cluster("b")}, as{assigned("a")}, Decision{Pinned: stays}},
		"when a taint expels it": {
			single(), cs{cluster("a", tainted(corev1.TaintEffectNoExecute)), cluster("b")}, as{assigned("a")}, Decision{Pinned: stays}},
		"when its cluster is lost": {
			single(leavingAfter(1)), cs{cluster("a", lostFor(time.Hour)), cluster("b")}, as{assigned("a")}, Decision{Pinned: stays}},
		"when it breaks before it makes": {
			single(breaking), cs{cluster("a", drained), cluster("b")}, as{assigned("a")}, Decision{Pinned: stays}},
		"but says nothing while it may stay": {single(), cs{cluster("a"), cluster("b")}, as{assigned("a")}, Decision{}},
		"and a new copy that waits for it goes": {single(only("b")), cs{cluster("a"), cluster("b")}, as{assigned("a"), assigned("b", placing)},
			Decision{Drain: []string{"b"}, Pinned: stays}},
		"but not a copy that has never been ready": {
			single(only("b")), cs{cluster("a"), cluster("b")}, as{assigned("a", placing)},
			Decision{Create: map[string]*v1alpha1.Share{"b": nil}, Moves: true}},
		"but not without a placement": {nil, cs{cluster("a")}, as{assigned("a")}, Decision{Drain: []string{"a"}}},
		"when its weight becomes zero": {
			single(weighted), cs{cluster("a")}, as{assigned("a", sharing(share(0, 1, 1)))}, Decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(Snapshot{
				Key: "w/n", Placement: test.placement, Clusters: test.clusters, Assignments: test.assignments, BoundClaim: "data", Now: now,
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSharesAddUpToTheReplicas(t *testing.T) {
	p := single(spread)
	p.Spread = &v1alpha1.SpreadSpec{Weights: map[string]v1alpha1.Weight{"a": 3, "b": 7, "d": 0}}
	shares := sharesOf(p, []string{"c", "a", "b"})
	for n := range int64(1000) {
		sum := int64(0)
		for _, s := range shares {
			sum += s.Of(n)
		}
		if sum != n {
			t.Fatalf("the parts of %d add up to %d", n, sum)
		}
	}
}

func TestNamespacesSpreadOverClustersAndStayWhenAClusterIsAdded(t *testing.T) {
	clusters := cs{cluster("a"), cluster("b"), cluster("c")}
	used := map[string]int{}
	moved := 0
	for i := range 900 {
		s := Snapshot{Key: fmt.Sprintf("w/%d", i), Placement: single(), Clusters: clusters, Now: now}
		d, err := Decide(s)
		if err != nil || len(d.Create) != 1 {
			t.Fatalf("got %v, %v", d, err)
		}
		for name := range d.Create {
			used[name]++
			s.Clusters = append(clusters[:3:3], cluster("d"))
			next, err := Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			if _, same := next.Create[name]; !same {
				moved++
			}
			s.Assignments = as{assigned(name)}
			if next, err = Decide(s); err != nil || len(next.Create) > 0 {
				t.Fatalf("a placed namespace moves: %v, %v", next, err)
			}
		}
	}
	for name, n := range used {
		if n < 200 || n > 400 {
			t.Errorf("cluster %s has %d of 900 namespaces", name, n)
		}
	}
	if moved > 350 {
		t.Errorf("a fourth cluster changes the choice of %d of 900 namespaces", moved)
	}
}
