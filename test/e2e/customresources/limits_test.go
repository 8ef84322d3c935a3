package customresources

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestComputationForDefinitionsIsLimited(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	for want, change := range map[string]func(*apiextensionsv1.CustomResourceDefinitionVersion){
		`spec.versions[0].additionalPrinterColumns[0].jsonPath: Invalid value: ".spec..a..a..a..a"`: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			v.AdditionalPrinterColumns[0].JSONPath = ".spec..a..a..a..a"
		},
		`spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].pattern: Forbidden`: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["a"] = apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: strings.Repeat("[a-cx]{1000}", 100)}
		},
		`spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].items: Forbidden: defaults add more than 2048 bytes`: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["a"] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
				Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"b": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"` + strings.Repeat("b", 1<<20) + `"`)}},
				}},
			}}
		},
		`x-kubernetes-validations[0].rule: Forbidden: the second argument of replace() must be a string literal`: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["a"] = apiextensionsv1.JSONSchemaProps{
				Type: "string", XValidations: apiextensionsv1.ValidationRules{{Rule: `self.replace("", self).size() > 0`}},
			}
		},
	} {
		crd := widgetDefinition(sized())
		change(&crd.Spec.Versions[0])
		_, err := cluster.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %.500v, want %s", err, want)
		}
	}
}

func TestComputationForObjectsIsLimited(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	properties := sized()
	properties["numbers"] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}}}
	cluster.Define(t, widgetDefinition(properties))
	path := "/clusters/" + cluster.Name + "/apis/demo.example.com/v1/namespaces/default/widgets"
	object := func(numbers string) string {
		return `{"apiVersion":"demo.example.com/v1","kind":"Widget","metadata":{"name":"one"},"spec":{"numbers":[` + numbers + `]}}`
	}
	for name, tc := range map[string]struct {
		contentType, body, want string
		code                    int
	}{
		"many errors":    {"application/json", object(strings.Repeat(`"a",`, 19_000) + "1"), "the object has more than 2000 errors", http.StatusUnprocessableEntity},
		"many items":     {"application/json", object(strings.Repeat(`1,`, 30_000) + "1"), "too many values in its largest lists and objects", http.StatusRequestEntityTooLarge},
		"many levels":    {"application/json", object(strings.Repeat(`[`, 5_000) + strings.Repeat(`]`, 5_000)), "nested more than 1000 deep", http.StatusBadRequest},
		"many aliases":   {"application/yaml", "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 50_000) + "*a]\n", "after its aliases are expanded", http.StatusRequestEntityTooLarge},
		"a usual object": {"application/json", object("1,2,3"), `"numbers":[1,2,3]`, http.StatusCreated},
	} {
		code, body := cluster.Raw(t, kcptest.Masters, http.MethodPost, path, http.Header{"Content-Type": {tc.contentType}}, tc.body)
		status := metav1.Status{}
		if err := json.Unmarshal(body, &status); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if code != tc.code || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: got %d %.500s, want %d %s", name, code, body, tc.code, tc.want)
		}
	}
	code, body := cluster.Raw(t, kcptest.Masters, http.MethodGet, path+"?labelSelector="+strings.Repeat("!a,", 2000)+"a", nil, "")
	if want := fmt.Sprintf("labelSelector has %d requirements; at most 1000 are allowed", 2001); code != http.StatusBadRequest || !strings.Contains(string(body), want) {
		t.Errorf("got %d %.500s, want %s", code, body, want)
	}
}
