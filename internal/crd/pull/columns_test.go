package pull

import (
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/internal/crd"
)

// kindOf returns the kind of a resource in a document.
func kindOf(d document, resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	for _, s := range d.schemas {
		for _, kind := range kinds(s) {
			if plural, _ := meta.UnsafeGuessKindToResource(kind); plural == resource {
				return kind, true
			}
		}
	}
	return schema.GroupVersionKind{}, false
}

// typeAt returns the type of the field at a path of a column, or "".
func typeAt(s *apiextensionsv1.JSONSchemaProps, path string) string {
	path = regexp.MustCompile(`\[\?\(@\.type==".*"\)\]`).ReplaceAllString(path, "[0]")
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		name, item := strings.CutSuffix(name, "[0]")
		next, ok := s.Properties[name]
		switch {
		case !ok && s.AdditionalProperties != nil:
			next = *s.AdditionalProperties.Schema
		case !ok:
			return ""
		}
		if s = &next; item {
			s = s.Items.Schema
		}
	}
	if s.XIntOrString {
		return "int or string"
	}
	return s.Type
}

func TestColumnsOfBuiltInTypesShowFieldsOfTheirSchema(t *testing.T) {
	for gvr := range builtInColumns {
		d := builtIn(t, gvr.GroupVersion())
		kind, ok := kindOf(d, gvr)
		if !ok {
			t.Errorf("Kubernetes has no %v", gvr)
			continue
		}
		definition, err := build(&resource{version: gvr.GroupVersion(), APIResource: metav1.APIResource{
			Name: gvr.Resource, SingularName: strings.ToLower(kind.Kind), Kind: kind.Kind, Namespaced: true}}, d, nil)
		if err != nil {
			t.Fatal(err)
		}
		if problems := crd.Problems(definition); len(problems) > 0 {
			t.Errorf("%v: %v", gvr, problems.ToAggregate())
		}
		version := definition.Spec.Versions[0]
		ages := 0
		for _, c := range version.AdditionalPrinterColumns {
			if c == age {
				ages++
				continue // schemas of metadata have no fields
			}
			switch found := typeAt(version.Schema.OpenAPIV3Schema, c.JSONPath); {
			case found == "":
				t.Errorf("%v has no field %s", gvr, c.JSONPath)
			case (c.Type == "integer" || c.Type == "boolean") && c.Type != found:
				t.Errorf("%v: column %q is of the type %s, and its field %s", gvr, c.Name, c.Type, found)
			}
		}
		if ages != 1 {
			t.Errorf("%v has %d columns with the age", gvr, ages)
		}
	}
}

func TestOnlyTypesWithoutColumnsGetThoseOfBuiltInTypes(t *testing.T) {
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	r := &resource{version: gv, APIResource: metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment"}}
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Paused", Type: "boolean", Description: pathDescription + ".spec.paused"}}}
	definition, err := build(r, builtIn(t, gv), table)
	if err != nil {
		t.Fatal(err)
	}
	if got := definition.Spec.Versions[0].AdditionalPrinterColumns; len(got) != 1 || got[0].Name != "Paused" {
		t.Errorf("the columns of the server are replaced by %v", got)
	}
	if got := ofBuiltIn(gv.WithResource("controllerrevisions")); got != nil {
		t.Errorf("another type has the columns %v", got)
	}
}
