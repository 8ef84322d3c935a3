package admission

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

func TestObjectsWithInvalidConditionsAreDecoded(t *testing.T) {
	object := func(phase any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "w"},
			"status":   map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "lastTransitionTime": "2020-01-01t00:00:00z"}}},
		}}
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err := decode(object("Ready"), ws); err != nil || ws.Status.Phase != "Ready" || ws.Name != "w" {
		t.Errorf("got %+v: %v", ws, err)
	}
	if err := decode(object(int64(1)), &tenancyv1alpha1.Workspace{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a phase that is a number: got %v, want BadRequest", err)
	}
}
