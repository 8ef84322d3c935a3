package feed

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// mostRequests is the number of different resources that a pod may request. Pods with more count as if they requested none.
const mostRequests = 32

// counted are the fields with the number of pods, by the resource whose template describes them.
var counted = map[schema.GroupResource]string{
	{Group: "apps", Resource: "deployments"}:  "replicas",
	{Group: "apps", Resource: "statefulsets"}: "replicas",
	{Group: "apps", Resource: "replicasets"}:  "replicas",
	{Group: "batch", Resource: "jobs"}:        "parallelism",
}

// requests returns what the pods of an object request together.
func requests(key Key, object *unstructured.Unstructured) corev1.ResourceList {
	field, ok := counted[key.Resource.GroupResource()]
	if !ok || object == nil || object.GetDeletionTimestamp() != nil {
		return nil
	}
	count, found, err := unstructured.NestedInt64(object.Object, "spec", field)
	if !found || err != nil {
		count = 1
	}
	spec, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
	content, isObject := spec.(map[string]any)
	pod := &corev1.Pod{}
	if !found || err != nil || !isObject || count <= 0 || runtime.DefaultUnstructuredConverter.FromUnstructured(content, &pod.Spec) != nil {
		return nil
	}
	list := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	if len(list) > mostRequests {
		return nil
	}
	for name, quantity := range list {
		quantity.Mul(count)
		list[name] = quantity
	}
	list[corev1.ResourcePods] = *resource.NewQuantity(count, resource.DecimalSI)
	return list
}

// add adds to a sum, or subtracts from it if sign is negative.
func add(sum corev1.ResourceList, list corev1.ResourceList, sign int) {
	for name, quantity := range list {
		total := sum[name]
		if sign < 0 {
			total.Sub(quantity)
		} else {
			total.Add(quantity)
		}
		if sum[name] = total; total.IsZero() {
			delete(sum, name)
		}
	}
}

// demand is what a namespace requires of a cluster.
type demand struct {
	// requests are those of each object, and sum is their sum.
	requests map[Key]corev1.ResourceList
	sum      corev1.ResourceList
	// resources counts the objects of each resource.
	resources map[schema.GroupResource]int
}

func newDemand() demand {
	return demand{map[Key]corev1.ResourceList{}, corev1.ResourceList{}, map[schema.GroupResource]int{}}
}

// count counts the object of a key that was there before, or is there now. It reports whether the resources of the namespace change.
func (d *demand) count(key Key, before, now bool) bool {
	of := key.Resource.GroupResource()
	switch {
	case now && !before:
		d.resources[of]++
		return d.resources[of] == 1
	case before && !now:
		if d.resources[of]--; d.resources[of] == 0 {
			delete(d.resources, of)
			return true
		}
	}
	return false
}

// set replaces the requests of an object.
func (d *demand) set(key Key, list corev1.ResourceList) {
	add(d.sum, d.requests[key], -1)
	add(d.sum, list, 1)
	if d.requests[key] = list; len(list) == 0 {
		delete(d.requests, key)
	}
}

// account adds the requests of a namespace to those that are expected on its clusters, or subtracts them. The requests of a copy that is
// ready are not expected any more: its agent reports them.
func (x *Index) account(c *content, sign int) {
	for cluster, a := range c.assignments {
		if a.Spec.Draining || a.Status.Phase == v1alpha1.AssignmentReady {
			continue
		}
		if x.expected[cluster] == nil {
			x.expected[cluster] = corev1.ResourceList{}
		}
		if add(x.expected[cluster], a.Spec.Share.OfRequests(c.demand.sum), sign); len(x.expected[cluster]) == 0 {
			delete(x.expected, cluster)
		}
	}
}

// Demand returns what the pods of a namespace request, and the resources of its objects.
func (x *Index) Demand(n Namespace) (corev1.ResourceList, []schema.GroupResource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.namespaces[n]
	if c == nil {
		return nil, nil
	}
	resources := slices.Collect(maps.Keys(c.demand.resources))
	slices.SortFunc(resources, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return c.demand.sum.DeepCopy(), resources
}

// Expected returns what pods will request on each cluster that its agent does not report yet: those of copies that are not ready.
func (x *Index) Expected() map[string]corev1.ResourceList {
	x.mu.Lock()
	defer x.mu.Unlock()
	copied := make(map[string]corev1.ResourceList, len(x.expected))
	for cluster, list := range x.expected {
		copied[cluster] = list.DeepCopy()
	}
	return copied
}
