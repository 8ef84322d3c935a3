package summary

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func status(available, observed int64, condition string) map[string]any {
	return map[string]any{"availableReplicas": available, "observedGeneration": observed,
		"conditions": []any{map[string]any{"type": "Available", "status": condition}}}
}

func TestCountersAreAddedUpAndTheWorstConditionIsShown(t *testing.T) {
	got := Merge(schema.GroupResource{Group: "apps", Resource: "deployments"}, map[string]map[string]any{
		"a": status(2, 7, "True"), "b": status(3, 6, "False"), "c": status(1, 7, "Unknown"),
	})
	if diff := cmp.Diff(status(6, 6, "False"), got); diff != "" {
		t.Error(diff)
	}
}

func TestTheStatusOfOneClusterIsUnchanged(t *testing.T) {
	one := status(2, 7, "True")
	if diff := cmp.Diff(
		one,
		Merge(schema.GroupResource{Group: "example.com", Resource: "things"}, map[string]map[string]any{"a": one}),
	); diff != "" {
		t.Error(diff)
	}
}
