package frontproxy

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

func TestARouteIsExposedWhenEachGatewayHasAcceptedIt(t *testing.T) {
	edge := v1alpha1.GatewayReference{Name: "edge", Namespace: "gateways", SectionName: "tls", Port: 443}
	ref := map[string]any{"name": "edge", "namespace": "gateways", "sectionName": "tls", "port": int64(443)}
	answer := func(ref map[string]any, kind, status string, generation int64) any {
		return map[string]any{"parentRef": ref, "conditions": []any{map[string]any{"type": kind, "status": status, "reason": "NoMatchingParent",
			"message": "no listener", "observedGeneration": generation}}}
	}
	own := map[string]any{"name": "own"}
	for _, test := range []struct {
		name     string
		gateways []v1alpha1.GatewayReference
		parents  []any
		reason   string
	}{
		{"no controller has seen it", []v1alpha1.GatewayReference{edge}, nil, "WaitingForGateway"},
		{"it is accepted", []v1alpha1.GatewayReference{edge}, []any{answer(ref, "Accepted", "True", 2)}, ""},
		{"it is accepted in its own namespace", []v1alpha1.GatewayReference{{Name: "own"}}, []any{answer(own, "Accepted", "True", 2)}, ""},
		{"it is refused", []v1alpha1.GatewayReference{edge}, []any{answer(ref, "Accepted", "False", 2)}, "RouteNotAccepted"},
		{"another controller refuses it", []v1alpha1.GatewayReference{edge},
			[]any{answer(ref, "Accepted", "True", 2), answer(ref, "Accepted", "False", 2)}, ""},
		{"a former route was accepted", []v1alpha1.GatewayReference{edge}, []any{answer(ref, "Accepted", "True", 1)}, "WaitingForGateway"},
		{"only another condition is known", []v1alpha1.GatewayReference{edge}, []any{answer(ref, "ResolvedRefs", "True", 2)}, "WaitingForGateway"},
		{"the second has not answered", []v1alpha1.GatewayReference{edge, {Name: "own"}}, []any{answer(ref, "Accepted", "True", 2)},
			"WaitingForGateway"},
		{"a Gateway of that name elsewhere answers", []v1alpha1.GatewayReference{edge}, []any{answer(map[string]any{"name": "edge",
			"sectionName": "tls", "port": int64(443)}, "Accepted", "True", 2)}, "WaitingForGateway"},
		{"the answer is malformed", []v1alpha1.GatewayReference{edge}, []any{"accepted"}, "WaitingForGateway"},
	} {
		t.Run(test.name, func(t *testing.T) {
			route := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"parents": test.parents}}}
			route.SetNamespace("team")
			route.SetGeneration(2)
			reason, blocked := "", (*conditions.Blocked)(nil)
			if errors.As(accepted(route, test.gateways), &blocked) {
				reason = blocked.Reason
			}
			if reason != test.reason {
				t.Errorf("got %q, want %q", reason, test.reason)
			}
		})
	}
}
