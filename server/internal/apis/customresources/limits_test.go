package customresources

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
)

const widgetsPath = "/apis/example.org/v1/namespaces/default/widgets"

func withColumns(paths ...string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		for _, path := range paths {
			crd.Spec.Versions[0].AdditionalPrinterColumns = append(crd.Spec.Versions[0].AdditionalPrinterColumns,
				apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: "string", JSONPath: path})
		}
	}
}

// anything lets objects have any content.
func anything(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = ptr.To(true)
}

// tooDeep has a schema that exceeds the limits.
func tooDeep(crd *apiextensionsv1.CustomResourceDefinition) {
	s := apiextensionsv1.JSONSchemaProps{Type: "string"}
	for range limits.MaxDepth {
		s = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": s}}
	}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = s
}

func TestAStoredColumnThatExceedsTheLimitsIsNotEvaluated(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets(withColumns(".spec.size", ".spec..a..a..a..a"), anything))
	deep := strings.Repeat(`{"a":`, 150) + "1" + strings.Repeat("}", 150)
	s.want(http.StatusCreated, "a", http.MethodPost, widgetsPath, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":7},"other":`+deep+`}`)
	table := s.want(http.StatusOK, "a", http.MethodGet, widgetsPath+"/w", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var got struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if err := json.Unmarshal([]byte(table.text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.ColumnDefinitions) != 2 || len(got.Rows) != 1 || got.Rows[0].Cells[1] != "7" {
		t.Errorf("got the table %+v", got)
	}
}

func TestAStoredDefinitionThatExceedsTheLimitsIsNotServed(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets(tooDeep))
	s.set("b", widgets())
	got := s.want(http.StatusServiceUnavailable, "a", http.MethodGet, widgetsPath, "")
	if !strings.Contains(got.text, "widgets.example.org is not served: its definition exceeds the limits of this server: spec.versions: Forbidden: schemas are nested more than 64 deep") {
		t.Error(got.text)
	}
	s.want(http.StatusOK, "b", http.MethodGet, widgetsPath, "")
	s.set("a", widgets())
	s.want(http.StatusOK, "a", http.MethodGet, widgetsPath, "")
}

func TestObjectsThatAreTooExpensiveToValidateAreRejected(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["list"] = apiextensionsv1.JSONSchemaProps{
			Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}},
		}
	}))
	body := func(items string, n int) string {
		return `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"list":[` + strings.Repeat(items+",", n) + items + `]}}`
	}
	got := s.want(http.StatusUnprocessableEntity, "a", http.MethodPost, widgetsPath, body(`"a"`, 20_000))
	if !strings.Contains(got.text, `Widget.example.org \"w\" is invalid: the object has more than 2000 errors`) {
		t.Errorf("%.300s", got.text)
	}
	s.want(http.StatusCreated, "a", http.MethodPost, widgetsPath, body("1", 20_000))
	s.want(http.StatusUnprocessableEntity, "a", http.MethodPatch, widgetsPath+"/w", `{"spec":{"list":[`+strings.Repeat(`"a",`, 20_000)+`"a"]}}`, "Content-Type", "application/merge-patch+json")
}

func TestADefinitionThatExceedsTheLimitsIsNeitherCreatedNorUpdated(t *testing.T) {
	internal := func(changes ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensions.CustomResourceDefinition {
		v1, crd := widgets(changes...), &apiextensions.CustomResourceDefinition{}
		v1.Status.StoredVersions = []string{"v1"}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
			t.Fatal(err)
		}
		crd.ResourceVersion = "1"
		return crd
	}
	columns := func(errs field.ErrorList) bool {
		return len(errs) == 1 && errs[0].Field == "spec.versions[0].additionalPrinterColumns[0].jsonPath"
	}
	if errs := ValidateDefinition(context.Background(), internal(withColumns(".spec..a"))); !columns(errs) {
		t.Errorf("creation: %v", errs)
	}
	update := updateStrategy{rest.RESTUpdateStrategy(nil)}
	if errs := update.ValidateUpdate(context.Background(), internal(withColumns(".spec..a")), internal()); !columns(errs) {
		t.Errorf("update: %v", errs)
	}
	// A stored object can be deleted: its finalizers can change.
	if errs := update.ValidateUpdate(context.Background(), internal(withColumns(".spec..a")), internal(withColumns(".spec..a"))); len(errs) > 0 {
		t.Errorf("update of the metadata: %v", errs)
	}
}

func TestTheDefinitionsOfTheServerAreWithinTheLimits(t *testing.T) {
	definitions, err := SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range definitions {
		if errs := limits.Check(&crd.Spec, true); len(errs) > 0 {
			t.Errorf("%s: %v", crd.Name, errs)
		}
	}
}
