package placement

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

func cpus(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

// having is a cluster with processors and memory, of which some are requested.
func having(capacity, requested string) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Status.Capacity, c.Status.Requested = cpus(capacity), cpus(requested)
		c.Status.Capacity[corev1.ResourceMemory] = resource.MustParse("100Gi")
	}
}

func refusing(field string) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Status.Resources = []v1alpha1.ClusterResource{
			{Group: "apps", Resource: "deployments", State: v1alpha1.ResourceIncompatible, Field: field, Message: "enum value is removed"},
			{Resource: "services", State: v1alpha1.ResourceAccepted},
		}
	}
}

func created(d Decision) string { return strings.Join(sorted(d.Create), ",") }

func TestRoomDecides(t *testing.T) {
	for name, test := range map[string]struct {
		placement *v1alpha1.PlacementSpec
		clusters  cs
		current   as
		requests  string
		expected  map[string]corev1.ResourceList
		want      string
		says      string
	}{
		"a full cluster is left out":                   {single(), cs{cluster("a", having("4", "3")), cluster("b", having("4", "1"))}, nil, "2", nil, "b", ""},
		"nothing fits":                                 {single(), cs{cluster("a", having("4", "3"))}, nil, "2", nil, "", "a has no room: the namespace requests 2 of cpu, and 1 is free"},
		"what exactly fits is accepted":                {single(), cs{cluster("a", having("4", "2"))}, nil, "2", nil, "a", ""},
		"copies that are not ready count":              {single(), cs{cluster("a", having("4", "1"))}, nil, "2", map[string]corev1.ResourceList{"a": cpus("2")}, "", "1 is free"},
		"more room is preferred":                       {single(), cs{cluster("a", having("10", "9")), cluster("b", having("10", "1")), cluster("c", having("10", "5"))}, nil, "0", nil, "b", ""},
		"a cluster without a report is never full":     {single(), cs{cluster("a")}, nil, "2", nil, "a", ""},
		"a namespace stays on a full cluster":          {single(), cs{cluster("a", having("4", "4")), cluster("b", having("4", "0"))}, as{assigned("a")}, "2", nil, "", ""},
		"a spread leaves out what has no room":         {single(spread), cs{cluster("a", having("4", "3")), cluster("b", having("4", "0")), cluster("c", having("4", "0"))}, nil, "6", nil, "b,c", ""},
		"parts that grow may not fit":                  {single(spread), cs{cluster("a", having("4", "3")), cluster("b", having("4", "0")), cluster("c", having("4", "1.5"))}, nil, "7.5", nil, "", "no cluster fits"},
		"a resource that the cluster lacks is no room": {single(), cs{cluster("a", func(c *v1alpha1.Cluster) { c.Status.Capacity = corev1.ResourceList{"pods": resource.MustParse("9")} })}, nil, "1", nil, "", "0 is free"},
	} {
		d, err := Decide(Snapshot{Key: "w/n", Placement: test.placement, Clusters: test.clusters, Assignments: test.current,
			Requests: cpus(test.requests), Expected: test.expected, Now: now})
		if err != nil || created(d) != test.want || !strings.Contains(d.Unscheduled, test.says) || (test.says == "") != (d.Unscheduled == "") {
			t.Errorf("%s: created %q, want %q: %q: %v", name, created(d), test.want, d.Unscheduled, err)
		}
		if waits := d.Again > 0; waits != (d.Unscheduled != "") {
			t.Errorf("%s: decided on again after %s", name, d.Again)
		}
	}
}

func TestThePickIsStableWhileRoomChangesALittle(t *testing.T) {
	var picks []string
	for _, requested := range []string{"4.1", "4.3", "4.7", "4.9"} {
		d, err := Decide(Snapshot{Key: "w/n", Placement: single(), Now: now, Requests: cpus("1"),
			Clusters: cs{cluster("a", having("10", requested)), cluster("b", having("10", "4.5"))}})
		if err != nil {
			t.Fatal(err)
		}
		picks = append(picks, created(d))
	}
	if len(slices.Compact(picks)) != 1 {
		t.Errorf("the picks are %v", picks)
	}
}

func TestANamespaceRunsOnlyWhereItsResourcesAreAccepted(t *testing.T) {
	uses := []schema.GroupResource{{Group: "apps", Resource: "deployments"}, {Resource: "services"}}
	a, b := cluster("a", refusing("spec.mode")), cluster("b")
	for name, test := range map[string]struct {
		clusters  cs
		current   as
		resources []schema.GroupResource
		want      Decision
	}{
		"a new namespace avoids it":       {cs{a, b}, nil, uses, Decision{Create: map[string]*v1alpha1.Share{"b": nil}}},
		"without such objects it may run": {cs{a}, nil, uses[1:], Decision{Create: map[string]*v1alpha1.Share{"a": nil}}},
		"nothing fits": {cs{a}, nil, uses,
			Decision{Unscheduled: "no cluster fits: a does not accept deployments.apps: spec.mode: enum value is removed"}},
		"a copy moves, and stays until the new one is ready": {cs{a, b}, as{assigned("a")}, uses,
			Decision{Create: map[string]*v1alpha1.Share{"b": nil}, Moves: true}},
		"a copy stays if nothing fits": {cs{a}, as{assigned("a")}, uses,
			Decision{Unscheduled: "no cluster fits: a does not accept deployments.apps: spec.mode: enum value is removed"}},
	} {
		d, err := Decide(Snapshot{Key: "w/n", Placement: single(), Clusters: test.clusters, Assignments: test.current, Resources: test.resources, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		d.Share = nil
		if diff := cmp.Diff(test.want, d); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
