package admission

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestResponsesOfWebhooksAreBounded(t *testing.T) {
	operation := `{"op":"add","path":"/metadata/labels/x","value":"y"}`
	patch := func(operations int) []byte {
		return []byte("[" + strings.Repeat(operation+",", operations-1) + operation + "]")
	}
	for name, test := range map[string]struct {
		response *admissionv1.AdmissionResponse
		want     string
	}{
		"an empty response is accepted":                {&admissionv1.AdmissionResponse{}, ""},
		"a patch with a large object is accepted":      {&admissionv1.AdmissionResponse{Patch: []byte(`[{"op":"replace","path":"","value":"` + strings.Repeat("x", 1<<20) + `"}]`)}, ""},
		"as many operations as the limit are accepted": {&admissionv1.AdmissionResponse{Patch: patch(maxPatchOperations)}, ""},
		"one operation more than the limit is refused": {&admissionv1.AdmissionResponse{Patch: patch(maxPatchOperations + 1)}, "response.patch has more than 10000 operations"},
		"empty operations count":                       {&admissionv1.AdmissionResponse{Patch: []byte("[" + strings.Repeat("{},", maxPatchOperations) + "{}]")}, "more than 10000 operations"},
		"a deeply nested patch is left to upstream":    {&admissionv1.AdmissionResponse{Patch: []byte(strings.Repeat("[", 100000))}, ""}, // upstream refuses it
		"a long message is refused":                    {&admissionv1.AdmissionResponse{Result: &metav1.Status{Message: strings.Repeat("x", maxStatusBytes)}}, "response.status has"},
		"long annotations are refused":                 {&admissionv1.AdmissionResponse{AuditAnnotations: map[string]string{"x": strings.Repeat("x", maxAnnotationBytes)}}, "response.auditAnnotations has"},
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
