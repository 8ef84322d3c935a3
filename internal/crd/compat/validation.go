package compat

import (
	"encoding/json"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
)

// hasRules reports whether a definition has CEL rules.
func hasRules(crd *definition) bool {
	internal := &apiextensions.CustomResourceDefinition{}
	if apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil) != nil {
		return true
	}
	return apiextensionsvalidation.HasSchemaWith(&internal.Spec, func(root *apiextensions.JSONSchemaProps) bool {
		return apiextensionsvalidation.SchemaHas(root, func(s *apiextensions.JSONSchemaProps) bool { return len(s.XValidations) > 0 })
	})
}

// accepts reports whether a default is valid for a schema, including nested defaults, and not pruned. It does not evaluate rules: the
// definition that the default comes from is valid, and the result is validated too.
func accepts(s *schema, value *apiextensionsv1.JSON) bool {
	internal := &apiextensions.JSONSchemaProps{}
	if apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, internal, nil) != nil {
		return false
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return false
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return false
	}
	var object any
	if json.Unmarshal(value.Raw, &object) != nil {
		return false
	}
	pruned := runtime.DeepCopyJSONValue(object)
	pruning.Prune(pruned, structural, false)
	if !reflect.DeepEqual(object, pruned) {
		return false
	}
	defaulting.Default(object, structural)
	return len(validation.ValidateCustomResource(nil, object, validator)) == 0
}
