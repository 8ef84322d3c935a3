package admission

import (
	"strings"
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

func TestRefusalOfObjectsThatCannotBeDecodedNamesTheField(t *testing.T) {
	ws := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
		"metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"location": map[string]any{"selector": map[string]any{
			"matchLabels": map[string]any{"region": int64(1)},
		}}},
	}}
	err := decode(ws, &tenancyv1alpha1.Workspace{})
	for _, want := range []string{
		`Workspace in version "tenancy.kcp.io/v1alpha1" cannot be handled as a Workspace`, "spec.location.selector.matchLabels", "string",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
