package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// levels is the number of levels of free room by which clusters are compared. A pick does not depend on small differences, which change
// with each report.
const levels = 5

// incompatible returns why a cluster cannot have the objects of the namespace, or "".
func (s Snapshot) incompatible(cluster *v1alpha1.Cluster) string {
	for _, r := range cluster.Status.Resources {
		of := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if r.State != v1alpha1.ResourceIncompatible || !slices.Contains(s.Resources, of) {
			continue
		}
		if r.Field != "" {
			return fmt.Sprintf("does not accept %s: %s: %s", of, r.Field, r.Message)
		}
		return fmt.Sprintf("does not accept %s: %s", of, r.Message)
	}
	return ""
}

// free returns what is free of a resource on a cluster.
func (s Snapshot) free(cluster *v1alpha1.Cluster, name corev1.ResourceName) resource.Quantity {
	free := cluster.Status.Capacity[name].DeepCopy()
	free.Sub(cluster.Status.Requested[name])
	free.Sub(s.Expected[cluster.Name][name])
	return free
}

// full returns why some requests do not fit on a cluster, or "". A cluster that reports no capacity is never full.
func (s Snapshot) full(cluster *v1alpha1.Cluster, requests corev1.ResourceList) string {
	if len(cluster.Status.Capacity) == 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		wanted, free := requests[name], s.free(cluster, name)
		if wanted.Cmp(free) > 0 && !wanted.IsZero() {
			return fmt.Sprintf("has no room: the namespace requests %s of %s, and %s is free", wanted.String(), name, free.String())
		}
	}
	return ""
}

// level returns how much room a cluster has, from 0 to levels. The scarcer one of processors and memory decides.
func (s Snapshot) level(cluster *v1alpha1.Cluster) int {
	lowest := levels
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		capacity := cluster.Status.Capacity[name]
		if capacity.Sign() <= 0 {
			return 0
		}
		free := s.free(cluster, name)
		part := free.AsApproximateFloat64() / capacity.AsApproximateFloat64()
		lowest = min(lowest, int(max(0, part)*levels))
	}
	return lowest
}

func (s Snapshot) cluster(name string) *v1alpha1.Cluster {
	i := slices.IndexFunc(s.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == name })
	return &s.Clusters[i]
}

// compareRoom orders clusters by their room, and those of one level as compare does.
func (s Snapshot) compareRoom(a, b string) int {
	return cmp.Or(cmp.Compare(s.level(s.cluster(b)), s.level(s.cluster(a))), s.compare(a, b))
}

// leaveOutFull removes the clusters that have no room for their part of the namespace. The parts of the others grow with each that is
// removed.
func (s Snapshot) leaveOutFull(c *candidates) {
	for found := true; found; {
		found = false
		target := c.target(s.Placement)
		shares := sharesOf(s.Placement, target)
		for _, name := range target {
			i := slices.Index(c.accept, name)
			if i < 0 {
				continue // it stays
			}
			if why := s.full(s.cluster(name), shares[name].OfRequests(s.Requests)); why != "" {
				c.accept, c.refused = slices.Delete(c.accept, i, i+1), append(c.refused, name+" "+why)
				c.full, found = true, true
			}
		}
	}
}
