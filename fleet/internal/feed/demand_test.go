package feed

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// requesting returns a Deployment whose pods request processors.
func requesting(name string, replicas int64, cpu string) *unstructured.Unstructured {
	u := deployment(name, "")
	container := map[string]any{"name": "c", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}
	u.Object["spec"] = map[string]any{"replicas": replicas, "template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
	return u
}

func cpuOf(list corev1.ResourceList) string {
	quantity := list[corev1.ResourceCPU]
	return quantity.String()
}

func TestTheDemandOfANamespaceIsThatOfItsPods(t *testing.T) {
	x := newTestIndex()
	web, other := Key{deployments, "web"}, Key{deployments, "other"}
	for i, step := range []struct {
		key       Key
		object    *unstructured.Unstructured
		cpu       string
		resources int
		decisive  bool
	}{
		{web, requesting("web", 3, "500m"), "1500m", 1, true},
		{other, requesting("other", 1, "2"), "3500m", 1, false},
		{Key{configMapsV1, "m"}, configMap("m", "v"), "3500m", 2, true},
		{web, requesting("web", 1, "500m"), "2500m", 2, false},
		{web, requesting("web", -1, "500m"), "2", 2, false},
		{web, requesting("web", 1, "a lot"), "2", 2, false},
		{web, requesting("web", 1, "-1"), "2", 2, false},
		{other, nil, "0", 2, false},
		{web, nil, "0", 1, true},
	} {
		decisive := x.SetObject(home, step.key, step.object)
		sum, resources := x.Demand(home)
		if cpuOf(sum) != step.cpu || len(resources) != step.resources || decisive != step.decisive {
			t.Errorf("step %d: %s of processors, resources %v, decisive %t", i, cpuOf(sum), resources, decisive)
		}
	}
}

// sized returns a cluster with some processors, and a quota.
func sized(name, cpu string, quota corev1.ResourceList) v1alpha1.Cluster {
	c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Quota: quota}}
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("1000")}
	return c
}

func TestCopiesThatAreNotReadyAreExpectedToRequestMore(t *testing.T) {
	x := newTestIndex()
	clusters := []v1alpha1.Cluster{sized("east", "100", nil), sized("west", "100", nil)}
	want := func(what, east, west string) {
		t.Helper()
		if got := x.Expected(clusters); cpuOf(got["east"]) != east || cpuOf(got["west"]) != west {
			t.Errorf("%s: expected %v", what, got)
		}
	}
	half := func(a *v1alpha1.Assignment) { a.Spec.Share = &v1alpha1.Share{Weight: 1, Total: 2} }
	ready := func(a *v1alpha1.Assignment) { a.Status.Phase = v1alpha1.AssignmentReady }
	x.SetObject(home, Key{deployments, "web"}, requesting("web", 4, "1"))
	want("without assignments", "0", "0")
	x.SetAssignment(assignment(home, "east"))
	want("all replicas", "4", "0")
	x.SetAssignment(assignment(home, "east", half))
	x.SetAssignment(assignment(home, "west", half))
	want("half of the replicas", "2", "2")
	x.SetObject(home, Key{deployments, "web"}, requesting("web", 3, "1"))
	want("after a change", "1500m", "1500m")
	x.SetAssignment(assignment(home, "east", half, ready))
	want("when east is ready", "0", "1500m")
	x.SetAssignment(assignment(home, "west", half, func(a *v1alpha1.Assignment) { a.Spec.Draining = true }))
	want("when west drains", "0", "0")
	x.SetAssignment(assignment(home, "east", half))
	x.RemoveAssignment(assignment(home, "east", half))
	want("when east is removed", "0", "0")
	if len(x.expected) > 0 {
		t.Errorf("an idle index has %v", x.expected)
	}
}

func TestOneCopyIsExpectedToRequestNoMoreThanItCanGet(t *testing.T) {
	quota := corev1.ResourceList{"requests.cpu": resource.MustParse("6"), corev1.ResourcePods: resource.MustParse("5")}
	for name, test := range map[string]struct {
		clusters  []v1alpha1.Cluster
		replicas  int64
		cpu, pods string
	}{
		"without limits in the way":            {[]v1alpha1.Cluster{sized("east", "8", nil)}, 4, "4", "4"},
		"pods of the default quota":            {[]v1alpha1.Cluster{sized("east", "1000", nil)}, 200, "200", "100"},
		"a quota":                              {[]v1alpha1.Cluster{sized("east", "8", quota)}, 200, "6", "5"},
		"a copy that is larger than a cluster": {[]v1alpha1.Cluster{sized("east", "8", nil)}, 9, "0", "0"},
		"a cluster that reports nothing":       {[]v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "east"}}}, 4, "0", "0"},
		"a cluster that is not known":          {nil, 4, "0", "0"},
	} {
		x := newTestIndex()
		x.Expected([]v1alpha1.Cluster{sized("east", "2", nil)})
		x.SetAssignment(assignment(home, "east"))
		x.SetObject(home, Key{deployments, "web"}, requesting("web", test.replicas, "1"))
		got := x.Expected(test.clusters)["east"]
		if pods := got[corev1.ResourcePods]; cpuOf(got) != test.cpu || pods.String() != test.pods {
			t.Errorf("%s: expected are %s of processors and %s pods", name, cpuOf(got), pods.String())
		}
		if x.RemoveAssignment(assignment(home, "east")); len(x.expected) > 0 {
			t.Errorf("%s: without copies, expected are %v", name, x.expected)
		}
	}
}

func TestPodsWithTooManyResourcesCountAsNone(t *testing.T) {
	u := requesting("web", 1, "1")
	requests := map[string]any{}
	for n := range mostRequests + 1 {
		requests[fmt.Sprint("example.com/r", n)] = "1"
	}
	container := map[string]any{"name": "c", "resources": map[string]any{"requests": requests}}
	u.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
	x := newTestIndex()
	x.SetObject(home, Key{deployments, "web"}, u)
	if sum, _ := x.Demand(home); len(sum) > 0 {
		t.Errorf("the demand has %d resources", len(sum))
	}
}

func TestANamespaceCountsABoundedNumberOfResources(t *testing.T) {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east"))
	many := func(from int) *unstructured.Unstructured {
		list := map[string]any{"cpu": "1"}
		for n := range mostRequests - 1 {
			list[fmt.Sprint("example.com/r", from+n)] = "1"
		}
		u := requesting("web", 1, "1")
		container := map[string]any{"name": "c", "resources": map[string]any{"requests": list}}
		u.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
		return u
	}
	const objects = 10
	for n := range objects {
		for range 2 { // an event that changes nothing changes no sum
			x.SetObject(home, Key{deployments, fmt.Sprint("web", n)}, many(n*mostRequests))
		}
	}
	sum, _ := x.Demand(home)
	if most := mostNames + len(basic); len(sum) > most || cpuOf(sum) != fmt.Sprint(objects) {
		t.Errorf("the demand has %d resources, at most %d count, and %s of processors", len(sum), most, cpuOf(sum))
	}
	for n := range objects {
		x.SetObject(home, Key{deployments, fmt.Sprint("web", n)}, nil)
	}
	if sum, _ := x.Demand(home); len(sum) > 0 {
		t.Errorf("without objects, the demand is %v", sum)
	}
}

func TestRequestsThatAreEqualChangeNothing(t *testing.T) {
	d := newDemand()
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	key := Key{deployments, "web"}
	for i, step := range []struct {
		list corev1.ResourceList
		want bool
	}{{nil, false}, {list("1"), true}, {list("1000m"), false}, {list("2"), true}, {nil, true}, {nil, false}} {
		if got := d.set(key, step.list); got != step.want {
			t.Errorf("step %d: changes %t", i, got)
		}
	}
}

func TestOnlyResourcesWithPodsHaveADemand(t *testing.T) {
	u := requesting("web", 1, "1")
	for resourceName, want := range map[string]string{"deployments": "1", "widgets": "0"} {
		key := Key{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resourceName}, "web"}
		got := requests(key, u)[corev1.ResourceCPU]
		if got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: %s", resourceName, got.String())
		}
	}
}
