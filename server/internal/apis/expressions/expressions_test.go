package expressions

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestCallsThatCreateUnboundedStringsAreRejected(t *testing.T) {
	for expression, want := range map[string]string{
		`self.a.replace("Mi", "")`:                                             "",
		`self.a.replace("a", "bc").replace("d", "ef")`:                         "",
		`self.a.replace(self.b, "")`:                                           "",
		`self.hosts.map(h, h.name + "!").join(", ")`:                           "",
		`self.hosts.filter(h, h != "").join(",")`:                              "",
		`"%s is not %d".format([self.a, self.b])`:                              "",
		`self.a.split(",").join(";")`:                                          "",
		`self.a == `:                                                           "",
		`self.a.replace("", self.b)`:                                           "the second argument of replace() must be a string literal",
		`self.a.replace("", "` + strings.Repeat("a", 64) + `")`:                "replace() can make a string more than 8 times longer",
		`self.a` + strings.Repeat(`.replace("a", "aaaa")`, 4):                  "replace() can make a string more than 8 times longer",
		`self.all(x, x.map(y, y.replace("", self.b)) == [])`:                   "the second argument of replace() must be a string literal",
		`self.a.join(self.b)`:                                                  "the argument of join() must be a string literal",
		`self.a.map(x, self.b).join()`:                                         "the expression for each item may refer only to that item",
		`[` + strings.Repeat("self.a, ", maxElements) + `self.a].join("")`:     "join() of a list of more than 64 values",
		`"%s".format([` + strings.Repeat("self.a, ", maxElements) + `self.a])`: "format() of a list of more than 64 values",
		`"` + strings.Repeat("a", maxLength) + `"`:                             "at most 65536 bytes",
	} {
		got := ""
		if err := Check(expression); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.80s: got %q, want %q", expression, got, want)
		}
	}
}

func TestEveryExpressionOfAnObjectIsChecked(t *testing.T) {
	bad := `object.data.a.replace("", object.data.b) != ""`
	for want, object := range map[string]any{
		"spec.validations[1].expression: ": &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}, {Expression: bad}},
		}},
		"spec.validations[0].messageExpression: ": &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionregistrationv1.Validation{{Expression: "true", MessageExpression: bad}},
		}},
		"spec.mutations[0].applyConfiguration.expression: ": &admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			Mutations: []admissionregistrationv1.Mutation{{ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: bad}}},
		}},
		"webhooks[0].matchConditions[0].expression: ": &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{MatchConditions: []admissionregistrationv1.MatchCondition{{Expression: bad}}},
		}},
	} {
		if err := CheckAll(object); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := CheckAll(&admissionregistrationv1.ValidatingAdmissionPolicy{}); err != nil {
		t.Error(err)
	}
}
