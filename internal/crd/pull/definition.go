package pull

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/internal/crd"
)

// approval is the value of the annotation that API servers require on definitions in groups of Kubernetes.
const approval = "unapproved, pulled from another cluster"

// build generates a definition of a resource from discovery, OpenAPI and a table. The conversion between versions is unknown, so the
// definition has only one version.
func build(r *resource, d document, table *metav1.Table) (*apiextensionsv1.CustomResourceDefinition, error) {
	kind := r.version.WithKind(r.Kind)
	schema, selectable, err := d.structural(kind)
	if err != nil {
		return nil, err
	}
	component, _ := d.component(kind)
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: crd.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: r.String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: r.version.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: r.Name, Singular: r.SingularName, Kind: r.Kind, ListKind: d.listKind(component, r.Kind),
				ShortNames: r.ShortNames, Categories: r.Categories,
			},
			Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: r.version.Version, Served: true, Storage: true,
				Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
				Subresources:             subresources(r, schema),
				AdditionalPrinterColumns: columns(table),
				SelectableFields:         selectable,
			}},
		},
	}
	if version := &definition.Spec.Versions[0]; version.AdditionalPrinterColumns == nil {
		version.AdditionalPrinterColumns = ofBuiltIn(r.version.WithResource(r.Name))
	}
	if r.Namespaced {
		definition.Spec.Scope = apiextensionsv1.NamespaceScoped
	}
	for _, protected := range []string{"k8s.io", "kubernetes.io"} {
		if r.version.Group == protected || strings.HasSuffix(r.version.Group, "."+protected) {
			definition.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approval}
		}
	}
	return definition, nil
}

// subresources returns the subresources that a definition can have. The paths of a scale subresource are not published, but all types of
// Kubernetes and most others use the same.
func subresources(r *resource, schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceSubresources {
	result := &apiextensionsv1.CustomResourceSubresources{}
	if slices.Contains(r.subresources, "status") {
		result.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	typeOf := func(parent, field string) string { return schema.Properties[parent].Properties[field].Type }
	if slices.Contains(r.subresources, "scale") && typeOf("spec", "replicas") == "integer" && typeOf("status", "replicas") == "integer" {
		result.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}
		for _, field := range []string{"selector", "labelSelector"} {
			if typeOf("status", field) == "string" {
				result.Scale.LabelSelectorPath = ptr.To(".status." + field)
				break
			}
		}
	}
	if result.Status == nil && result.Scale == nil {
		return nil
	}
	return result
}

// pathDescription is the prefix of the description of columns that have a path but no description.
const pathDescription = "Custom resource definition column (in JSONPath format): "

// columns returns the columns with a known path. It returns nil if the age is the only one, because every definition has it by default.
func columns(table *metav1.Table) []column {
	if table == nil {
		return nil
	}
	var result []column
	for _, c := range table.ColumnDefinitions {
		if path, found := strings.CutPrefix(c.Description, pathDescription); found {
			result = append(result, column{Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority, JSONPath: path})
		} else if c.Name == age.Name {
			result = append(result, age)
		}
	}
	if len(result) == 1 && result[0] == age {
		return nil
	}
	return result
}

// open replaces the schemas with one that accepts everything.
func open(definition *apiextensionsv1.CustomResourceDefinition) {
	definition.Spec.PreserveUnknownFields = false
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].SelectableFields = nil // must be in the schema
		definition.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
		}
	}
}
