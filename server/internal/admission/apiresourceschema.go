package admission

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
)

// resourceSchemaRules accepts schemas that would be valid CustomResourceDefinitions, and makes them immutable: the definitions of all
// consumers of an export depend on them.
type resourceSchemaRules struct{ rules }

var _ admission.ValidationInterface = resourceSchemaRules{}

// Validate implements admission.ValidationInterface.
func (r resourceSchemaRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apisv1alpha1.Resource("apiresourceschemas") || a.GetSubresource() != "" {
		return nil
	}
	schema, old := &apisv1alpha1.APIResourceSchema{}, &apisv1alpha1.APIResourceSchema{}
	if err := decodeBoth(a, schema, old); err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		if !reflect.DeepEqual(schema.Spec, old.Spec) {
			return invalid(a, field.ErrorList{field.Forbidden(field.NewPath("spec"),
				"field is immutable: create another APIResourceSchema and refer to it in the APIExport instead of this one")})
		}
		if schema.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] == old.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] {
			return nil
		}
	}
	if resource := (k8sschema.GroupResource{Group: schema.Spec.Group, Resource: schema.Spec.Names.Plural}); r.config.OfServer(resource) {
		// A provider that exports it would control resources of the server in the workspaces of consumers.
		return invalid(a, field.ErrorList{field.Forbidden(field.NewPath("spec", "names", "plural"), resource.String()+" is built in")})
	}
	return invalid(a, validateResourceSchema(ctx, schema))
}

// undottedGroups are the valid groups without a dot.
var undottedGroups = []string{"", "apps", "autoscaling", "batch", "extensions", "policy"}

var schemaPrefix = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

func validateResourceSchema(ctx context.Context, schema *apisv1alpha1.APIResourceSchema) field.ErrorList {
	group := schema.Spec.Group
	switch path := field.NewPath("spec", "group"); {
	case group == "core":
		return field.ErrorList{field.Invalid(path, group, `the core group is ""`)}
	case !strings.Contains(group, ".") && !slices.Contains(undottedGroups, group):
		return field.ErrorList{field.Invalid(path, group, "must be a domain with at least one dot, such as example.com")}
	}
	var errs field.ErrorList
	suffix := schemaSuffix(schema.Spec.Names.Plural, group)
	if prefix, ok := strings.CutSuffix(schema.Name, suffix); !ok || !schemaPrefix.MatchString(prefix) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), schema.Name,
			"must be <prefix>"+suffix+", with a prefix of lower case letters, digits and dashes that begins with a letter"))
	}
	v1, err := customresources.DefinitionOf(schema)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "versions"), "", err.Error()))
	}
	crd := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "versions"), "", err.Error()))
	}
	if approval, ok := schema.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approval}
	}
	for _, err := range customresources.ValidateDefinition(ctx, crd) {
		if err.Field == "metadata.name" || strings.HasPrefix(err.Field, "status") {
			continue // a schema is named differently and has no status
		}
		err.Field = schemaFields.Replace(err.Field)
		errs = append(errs, err)
	}
	return errs
}

// schemaFields replaces the paths of fields of definitions, as upstream's validation reports them, by those of schemas. Definitions have
// fields that are common to all versions one level higher.
var schemaFields = strings.NewReplacer(
	".schema.openAPIV3Schema", ".schema", "spec.validation.openAPIV3Schema", "spec.versions[0].schema",
	"spec.subresources", "spec.versions[0].subresources", "spec.selectableFields", "spec.versions[0].selectableFields",
	"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns",
)

// schemaSuffix returns the suffix of the names of the APIResourceSchemas of a resource.
func schemaSuffix(resource, group string) string {
	return "." + customresources.ResourceName(resource, group)
}
