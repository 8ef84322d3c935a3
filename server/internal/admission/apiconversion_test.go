package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestConversionsFitTheSchemaOfTheirName(t *testing.T) {
	schema := objecttest.In("provider", &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.org"}})
	schema.Spec.Group, schema.Spec.Names.Plural, schema.Spec.Names.Kind = "example.org", "widgets", "Widget"
	for _, version := range []string{"v1", "v2"} {
		schema.Spec.Versions = append(schema.Spec.Versions, apisv1alpha1.APIResourceVersion{
			Name: version, Served: true, Storage: version == "v1",
			Schema: runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object","properties":{"` + version + `":{"type":"string"}}}}}`)},
		})
	}
	const both = `{from: v1, to: v2, rules: [{field: spec.v1, destination: spec.v2}]}, {from: v2, to: v1, rules: [{field: spec.v2, destination: spec.v1}]}`
	object := func(conversions string) string {
		return "metadata: {name: v1.widgets.example.org}\nspec: {conversions: [" + conversions + "]}"
	}
	for name, test := range map[string]struct {
		write
		cluster string
		want    string
	}{
		"a conversion between the versions is admitted": {write{object: object(both)}, "provider", ""},
		"a conversion of the name of another schema is refused": {write{object: "metadata: {name: v2.widgets.example.org}\nspec: {conversions: []}"}, "provider",
			`422 Invalid: metadata.name: Invalid value: "v2.widgets.example.org": no APIResourceSchema has this name: create it first, because the conversion is between its versions`},
		"the schema of another workspace does not count": {write{object: object(both)}, "team",
			`422 Invalid: metadata.name: Invalid value: "v1.widgets.example.org": no APIResourceSchema has this name: create it first, because the conversion is between its versions`},
		"an unknown version is refused": {write{object: object(strings.ReplaceAll(both, "to: v2", "to: v3"))}, "provider",
			`422 Invalid: spec.conversions[0].to: Unsupported value: "v3": supported values: "v1", "v2"`},
		"an unknown field is refused": {write{object: object(strings.ReplaceAll(both, "field: spec.v1", "field: spec.v3"))}, "provider",
			`422 Invalid: spec.conversions[0].rules[0].field: Invalid value: "spec.v3": …`},
		"an update is validated": {write{object: object(strings.ReplaceAll(both, "to: v2", "to: v3")), before: object(both)}, "provider",
			`422 Invalid: spec.conversions[0].to: Unsupported value: "v3": supported values: "v1", "v2"`},
		"the status is not validated": {write{object: object(strings.ReplaceAll(both, "to: v2", "to: v3")), subresource: "status"}, "provider", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.version = "v1alpha1"
			a := test.attributes(t, "APIConversion")
			wantOutcome(t, a, conversionRules{rules{newConfig(t, nil, schema)}}.Validate(in(t, logicalcluster.Name(test.cluster)), a, nil), test.want)
		})
	}
}
