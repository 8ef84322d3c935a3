package scheduling

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Placement is a rule for choosing among the shards that accept a workspace.
type Placement string

const (
	// Locality keeps trees together: a workspace goes to the shard of its parent if that accepts it. Organizations, which are the
	// children of root, are distributed by load.
	Locality Placement = "locality"
	// Spread chooses at random.
	Spread Placement = "spread"
)

// choice is what the choice of a shard depends on beside the shards.
type choice struct {
	placement Placement
	selector  labels.Selector
	// own is the shard that chooses, which holds the parent. It needs no answer from itself.
	own string
	// organization reports whether the parent is root.
	organization bool
	// answers reports whether another shard responds. A shard that was never called does.
	answers func(shard string) bool
	// random returns a number below n.
	random func(n int) int
}

// choose returns the name of one of the shards that accept a workspace, or an UnschedulableError with the number of shards that each
// condition excludes.
func (c choice) choose(all []*corev1alpha1.Shard) (string, error) {
	var fit []*corev1alpha1.Shard
	for _, shard := range all {
		if c.exclusion(shard) == "" {
			fit = append(fit, shard)
		}
	}
	if len(fit) == 0 {
		return "", c.unschedulable(all)
	}
	slices.SortFunc(fit, func(a, b *corev1alpha1.Shard) int { return strings.Compare(a.Name, b.Name) })
	if c.placement == Spread {
		return fit[c.random(len(fit))].Name, nil
	}
	if !c.organization && slices.ContainsFunc(fit, func(shard *corev1alpha1.Shard) bool { return shard.Name == c.own }) {
		return c.own, nil
	}
	return c.lessLoaded(fit), nil
}

// exclusion returns why a shard does not accept the workspace, or an empty string if it does.
func (c choice) exclusion(shard *corev1alpha1.Shard) string {
	_, marked := shard.Annotations[corev1alpha1.UnschedulableAnnotation]
	switch {
	case !c.selector.Matches(labels.Set(shard.Labels)):
		return fmt.Sprintf("not matched by the selector %q in spec.location", c.selector)
	case marked:
		return "marked by the annotation " + corev1alpha1.UnschedulableAnnotation
	case isFull(shard):
		return "full (status.used reaches status.capacity)"
	case shard.Name != c.own && !c.answers(shard.Name):
		return "not responding"
	}
	return ""
}

// unschedulable returns an error for shards of which none accepts the workspace.
func (c choice) unschedulable(all []*corev1alpha1.Shard) UnschedulableError {
	if len(all) == 0 {
		return UnschedulableError{"there are no shards"}
	}
	excluded := map[string]int{}
	for _, shard := range all {
		excluded[c.exclusion(shard)]++
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(excluded)) {
		reasons = append(reasons, fmt.Sprintf("%d %s", excluded[reason], reason))
	}
	return UnschedulableError{fmt.Sprintf("none of %d shards accepts the workspace: %s", len(all), strings.Join(reasons, ", "))}
}

// lessLoaded returns the less loaded of two random shards. Shards report their load with a delay: always choosing the least loaded one
// would send all workspaces of that time to the same shard.
func (c choice) lessLoaded(shards []*corev1alpha1.Shard) string {
	first := c.random(len(shards))
	if len(shards) == 1 {
		return shards[first].Name
	}
	second := (first + 1 + c.random(len(shards)-1)) % len(shards)
	if compareLoad(shards[second], shards[first]) < 0 {
		first = second
	}
	return shards[first].Name
}

// isFull reports whether a shard has reached one of its limits.
func isFull(shard *corev1alpha1.Shard) bool {
	for resource, limit := range shard.Status.Capacity {
		if used, ok := shard.Status.Used[resource]; ok && used.Cmp(limit) >= 0 {
			return true
		}
	}
	return false
}

// compareLoad compares the largest used part of a limit of two shards, and then the numbers of their logical clusters.
func compareLoad(a, b *corev1alpha1.Shard) int {
	return cmp.Or(cmp.Compare(usedPart(a), usedPart(b)), cmp.Compare(logicalClustersOf(a), logicalClustersOf(b)))
}

func usedPart(shard *corev1alpha1.Shard) float64 {
	largest := 0.0
	for resource, limit := range shard.Status.Capacity {
		used := shard.Status.Used[resource]
		if l := limit.AsApproximateFloat64(); l > 0 {
			largest = max(largest, used.AsApproximateFloat64()/l)
		}
	}
	return largest
}

func logicalClustersOf(shard *corev1alpha1.Shard) int64 {
	used := shard.Status.Used[corev1alpha1.ResourceLogicalClusters]
	return used.Value()
}
