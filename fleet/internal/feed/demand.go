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
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// mostRequests is the number of different resources that a pod may request. Pods with more count as if they requested none.
const mostRequests = 32

// mostNames is the number of different resources that count in a namespace, besides those in basic. Its sum is read under the lock of all
// namespaces, and copied for each decision.
const mostNames = 64

// basic are the resources that always count.
var basic = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}

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
		if quantity.Sign() < 0 {
			return nil // no cluster runs such pods, and their sum would hide the requests of others
		}
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

// set replaces the requests of an object. It reports whether they change.
func (d *demand) set(key Key, list corev1.ResourceList) bool {
	former := d.requests[key]
	if quota.Equals(former, list) {
		return false
	}
	add(d.sum, former, -1)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if _, counts := d.sum[name]; !counts && len(d.sum) >= mostNames+len(basic) && !slices.Contains(basic, name) {
			delete(list, name)
			continue
		}
		add(d.sum, corev1.ResourceList{name: list[name]}, 1)
	}
	if d.requests[key] = list; len(list) == 0 {
		delete(d.requests, key)
	}
	return true
}

// limits are what the requests of a copy on a cluster cannot exceed.
type limits struct {
	quota, capacity corev1.ResourceList
}

// defaultPods is the number of pods that a namespace may have on a cluster without a quota of its own.
const defaultPods = 100

func limitsOf(cluster *v1alpha1.Cluster) limits {
	quota := cluster.Spec.Quota
	if len(quota) == 0 {
		quota = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(defaultPods, resource.DecimalSI)}
	}
	return limits{quota, cluster.Status.Capacity}
}

func (l limits) equal(other limits) bool {
	return quota.Equals(l.quota, other.quota) && quota.Equals(l.capacity, other.capacity)
}

// bounded returns what a copy with some requests can use of a cluster: at most the quota of its namespace, and nothing if the cluster is
// too small for the copy. What the cluster does not report has no limit to compare with, and is left out.
func (l limits) bounded(requests corev1.ResourceList) corev1.ResourceList {
	bounded := corev1.ResourceList{}
	for name, capacity := range l.capacity {
		wanted, ok := requests[name]
		if !ok {
			continue
		}
		for _, of := range []corev1.ResourceName{name, corev1.DefaultResourceRequestsPrefix + name} {
			if quota, limited := l.quota[of]; limited && wanted.Cmp(quota) > 0 {
				wanted = quota
			}
		}
		if wanted.Cmp(capacity) > 0 {
			return nil
		}
		bounded[name] = wanted.DeepCopy()
	}
	return bounded
}

// expect updates what a cluster has to expect of a namespace. The requests of a copy that is ready are not expected any more: its agent
// reports them.
func (x *Index) expect(c *content, cluster string) {
	var list corev1.ResourceList
	if a := c.assignments[cluster]; a != nil && !a.Spec.Draining && a.Status.Phase != v1alpha1.AssignmentReady {
		list = x.limits[cluster].bounded(a.Spec.Share.OfRequests(c.demand.sum))
	}
	if x.expected[cluster] == nil {
		x.expected[cluster] = corev1.ResourceList{}
	}
	add(x.expected[cluster], c.expected[cluster], -1)
	if add(x.expected[cluster], list, 1); len(x.expected[cluster]) == 0 {
		delete(x.expected, cluster)
	}
	if c.expected[cluster] = list; len(list) == 0 {
		delete(c.expected, cluster)
	}
}

// limit updates the limits of the clusters, and what is expected of clusters whose limits have changed.
func (x *Index) limit(clusters []v1alpha1.Cluster) {
	changed, all := map[string]bool{}, make(map[string]limits, len(clusters))
	for i := range clusters {
		name := clusters[i].Name
		all[name] = limitsOf(&clusters[i])
		changed[name] = !all[name].equal(x.limits[name])
	}
	for name := range x.limits {
		if _, ok := all[name]; !ok {
			changed[name] = true
		}
	}
	maps.DeleteFunc(changed, func(_ string, differs bool) bool { return !differs })
	if x.limits = all; len(changed) == 0 {
		return
	}
	for _, c := range x.namespaces {
		for cluster := range c.assignments {
			if changed[cluster] {
				x.expect(c, cluster)
			}
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

// Expected returns what pods will request on each cluster that its agent does not report yet: those of copies that are not ready. One copy
// adds at most what the quota of the cluster allows, and nothing if it is larger than the cluster.
func (x *Index) Expected(clusters []v1alpha1.Cluster) map[string]corev1.ResourceList {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit(clusters)
	copied := make(map[string]corev1.ResourceList, len(x.expected))
	for cluster, list := range x.expected {
		copied[cluster] = list.DeepCopy()
	}
	return copied
}
