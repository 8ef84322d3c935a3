package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	internal "k8s.io/kubernetes/pkg/apis/admissionregistration"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestExpressionsOfWebhooksAndPoliciesAreBounded(t *testing.T) {
	policyWith := func(expression string) runtime.Object {
		return &internal.ValidatingAdmissionPolicy{Spec: internal.ValidatingAdmissionPolicySpec{Validations: []internal.Validation{{Expression: expression}}}}
	}
	const bounded, unbounded = `object.data.a == "b"`, `object.data.a.replace("", object.data.b) != ""`
	for name, test := range map[string]struct {
		object      runtime.Object
		subresource string
		want        string
	}{
		"a bounded expression is admitted":   {policyWith(bounded), "", ""},
		"an unbounded expression is refused": {policyWith(unbounded), "", "403 Forbidden: spec.validations[0].expression: …"},
		"an unbounded expression of a webhook is refused": {&internal.MutatingWebhookConfiguration{Webhooks: []internal.MutatingWebhook{
			{MatchConditions: []internal.MatchCondition{{Expression: bounded}, {Expression: unbounded}}},
		}}, "", "403 Forbidden: webhooks[0].matchConditions[1].expression: …"},
		"the status of a policy is not checked":   {policyWith(unbounded), "status", ""},
		"a request without an object is admitted": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			group := admissionregistrationv1.SchemeGroupVersion
			a := admission.NewAttributesRecord(test.object, nil, group.WithKind("ValidatingAdmissionPolicy"), "", "x",
				group.WithResource("validatingadmissionpolicies"), test.subresource, admission.Create, nil, false, tenant)
			wantOutcome(t, a, boundedExpressions{}.Validate(in(t, "team"), a, nil), test.want)
		})
	}
}
