// Package summary combines the status of an object on several clusters into the one status that users see.
package summary

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sums are the fields whose values are added up, by resource.
var sums = map[schema.GroupResource][]string{
	{Group: "apps", Resource: "deployments"}: {
		"replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas",
	},
	{Group: "apps", Resource: "statefulsets"}: {"replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"},
	{Group: "apps", Resource: "replicasets"}: {
		"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
	},
	{Group: "apps", Resource: "daemonsets"}: {
		"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "updatedNumberScheduled",
		"numberAvailable", "numberUnavailable",
	},
	{Group: "batch", Resource: "jobs"}: {"active", "ready", "succeeded", "failed", "terminating"},
}

// rank orders the states of a condition by what users must see: a part that fails is not hidden by one that works.
var rank = map[string]int{"False": 0, "Unknown": 1, "True": 2}

// Merge returns the status of an object from its status on each cluster: counters are added up, the lowest observedGeneration counts,
// and a condition has the worst state. All other fields are those of the first cluster by name.
func Merge(resource schema.GroupResource, statuses map[string]map[string]any) map[string]any {
	names := slices.Sorted(maps.Keys(statuses))
	if len(names) == 0 {
		return nil
	}
	merged := runtime.DeepCopyJSON(statuses[names[0]])
	for _, name := range names[1:] {
		status := statuses[name]
		for _, field := range sums[resource] {
			if n := integer(merged[field]) + integer(status[field]); n != 0 {
				merged[field] = n
			}
		}
		if _, ok := merged["observedGeneration"]; ok {
			merged["observedGeneration"] = min(integer(merged["observedGeneration"]), integer(status["observedGeneration"]))
		}
		if conditions := worst(merged["conditions"], status["conditions"]); conditions != nil {
			merged["conditions"] = conditions
		}
	}
	return merged
}

func integer(value any) int64 {
	n, _ := value.(int64)
	return n
}

// worst returns the conditions of both lists, by type the one with the worse state.
func worst(a, b any) []any {
	byType := map[string]map[string]any{}
	for _, list := range []any{a, b} {
		items, _ := list.([]any)
		for _, item := range items {
			condition, _ := item.(map[string]any)
			kind, _ := condition["type"].(string)
			state, _ := condition["status"].(string)
			former, ok := byType[kind]
			formerState, _ := former["status"].(string)
			if !ok || cmp.Compare(rank[state], rank[formerState]) < 0 {
				byType[kind] = condition
			}
		}
	}
	var conditions []any
	for _, kind := range slices.Sorted(maps.Keys(byType)) {
		conditions = append(conditions, runtime.DeepCopyJSON(byType[kind]))
	}
	return conditions
}
