package agent

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// replicas returns the replicas in the first spec that has some, or 1.
func replicas(objects ...*unstructured.Unstructured) int64 {
	for _, u := range objects {
		if n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas"); found && err == nil {
			return n
		}
	}
	return 1
}

// unhealthy returns why an object is not ready, or "". It follows the conventions of Kubernetes: an observed generation, counters of
// replicas, and conditions that must be true. Objects without any of these are ready when they exist.
func unhealthy(u *unstructured.Unstructured, wanted int64) string {
	if u.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	observed, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	kind := u.GroupVersionKind().GroupKind().String()
	switch kind {
	case "Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps":
		if !found || observed < u.GetGeneration() {
			return "its controller has not seen the latest change"
		}
		fields := []string{"replicas", "readyReplicas", "availableReplicas"}
		if kind != "ReplicaSet.apps" {
			fields = append(fields, "updatedReplicas")
		}
		for _, field := range fields {
			if n, _, _ := unstructured.NestedInt64(u.Object, "status", field); n != wanted {
				return fmt.Sprintf("%s is %d, want %d", field, n, wanted)
			}
		}
		return ""
	}
	if found && observed < u.GetGeneration() {
		return "its controller has not seen the latest change"
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch condition["type"] {
		case "Ready", "Available":
			if condition["status"] != "True" {
				return fmt.Sprintf("condition %s is %v", condition["type"], condition["status"])
			}
		case "Failed":
			if condition["status"] == "True" {
				return fmt.Sprintf("failed: %v", condition["message"])
			}
		}
	}
	return ""
}
