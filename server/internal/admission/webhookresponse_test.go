package admission

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWebhooksAnswerWithLittle(t *testing.T) {
	operation := `{"op":"add","path":"/metadata/labels/x","value":"y"}`
	patch := func(operations int) []byte {
		return []byte("[" + strings.Repeat(operation+",", operations-1) + operation + "]")
	}
	for name, test := range map[string]struct {
		response *admissionv1.AdmissionResponse
		want     string
	}{
		"nothing":          {&admissionv1.AdmissionResponse{}, ""},
		"a large object":   {&admissionv1.AdmissionResponse{Patch: []byte(`[{"op":"replace","path":"","value":"` + strings.Repeat("x", 1<<20) + `"}]`)}, ""},
		"many operations":  {&admissionv1.AdmissionResponse{Patch: patch(maxPatchOperations)}, ""},
		"more":             {&admissionv1.AdmissionResponse{Patch: patch(maxPatchOperations + 1)}, "response.patch of the answer has more than 10000 operations"},
		"tiny operations":  {&admissionv1.AdmissionResponse{Patch: []byte("[" + strings.Repeat("{},", maxPatchOperations) + "{}]")}, "more than 10000 operations"},
		"a deep patch":     {&admissionv1.AdmissionResponse{Patch: []byte(strings.Repeat("[", 100000))}, ""}, // upstream refuses it
		"a long message":   {&admissionv1.AdmissionResponse{Result: &metav1.Status{Message: strings.Repeat("x", maxStatusBytes)}}, "response.status of the answer has"},
		"long annotations": {&admissionv1.AdmissionResponse{AuditAnnotations: map[string]string{"x": strings.Repeat("x", maxAnnotationBytes)}}, "response.auditAnnotations of the answer have"},
	} {
		content, err := json.Marshal(&admissionv1.AdmissionReview{Response: test.response})
		if err != nil {
			t.Fatal(err)
		}
		if err := checkReview(content); (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, deep := range []string{`{"response":{"x":` + strings.Repeat("[", 100000), strings.Repeat("{}", checkedBytes)} {
		if err := checkReview([]byte(deep)); err == nil || !strings.Contains(err.Error(), "not an AdmissionReview") {
			t.Errorf("got %v", err)
		}
	}
}
