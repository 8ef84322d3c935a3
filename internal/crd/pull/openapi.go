package pull

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The OpenAPI extensions that this package reads.
const (
	kindExtension          = "x-kubernetes-group-version-kind"
	selectableExtension    = "x-kubernetes-selectable-fields"
	preserveExtension      = "x-kubernetes-preserve-unknown-fields"
	intOrStringExtension   = "x-kubernetes-int-or-string"
	embeddedExtension      = "x-kubernetes-embedded-resource"
	listTypeExtension      = "x-kubernetes-list-type"
	mapKeysExtension       = "x-kubernetes-list-map-keys"
	patchStrategyExtension = "x-kubernetes-patch-strategy"
	patchKeyExtension      = "x-kubernetes-patch-merge-key"
)

const references = "#/components/schemas/"

// quantity is the pattern of resource quantities.
const quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// document is the OpenAPI document of one group version.
type document struct {
	schemas map[string]*spec.Schema
}

func newDocument(openAPI *spec3.OpenAPI) document {
	if openAPI.Components == nil {
		return document{}
	}
	return document{openAPI.Components.Schemas}
}

// component returns the name and the schema of the component for a kind.
func (d document) component(kind schema.GroupVersionKind) (string, *spec.Schema) {
	for name, s := range d.schemas {
		if slices.Contains(kinds(s), kind) {
			return name, s
		}
	}
	return "", nil
}

func kinds(s *spec.Schema) []schema.GroupVersionKind {
	var listed []metav1.GroupVersionKind
	if s.Extensions.GetObject(kindExtension, &listed) != nil {
		return nil
	}
	result := make([]schema.GroupVersionKind, len(listed))
	for i, k := range listed {
		result[i] = schema.GroupVersionKind(k)
	}
	return result
}

// listKind returns the list kind of a component: the kind whose items refer to it.
func (d document) listKind(component, kind string) string {
	for _, s := range d.schemas {
		items, found := s.Properties["items"]
		if found && items.Items != nil && items.Items.Schema != nil && refersTo(items.Items.Schema) == component && len(kinds(s)) == 1 {
			return kinds(s)[0].Kind
		}
	}
	return kind + "List"
}

// refersTo returns the name of the component that a schema refers to. The reference can be inside allOf, next to a description.
func refersTo(s *spec.Schema) string {
	if name, found := strings.CutPrefix(s.Ref.String(), references); found {
		return name
	}
	if len(s.AllOf) == 1 && len(s.Properties) == 0 {
		return refersTo(&s.AllOf[0])
	}
	return ""
}

// structural returns the structural schema of a kind and its selectable fields.
func (d document) structural(kind schema.GroupVersionKind) (*apiextensionsv1.JSONSchemaProps, []apiextensionsv1.SelectableField, error) {
	name, root := d.component(kind)
	if root == nil {
		return nil, nil, fmt.Errorf("OpenAPI has no schema of %s", kind)
	}
	e := expansion{document: d, ofCustomResource: d.isCustom(kind)}
	expanded, err := e.object(root, []string{name})
	if err != nil {
		return nil, nil, err
	}
	for field, description := range map[string]string{"apiVersion": expanded.Properties["apiVersion"].Description,
		"kind": expanded.Properties["kind"].Description} {
		expanded.SetProperty(field, spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: description}})
	}
	expanded.SetProperty("metadata", *plainObject()) // definitions must not say more about it
	content, err := json.Marshal(expanded)
	if err != nil {
		return nil, nil, err
	}
	result := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal(content, result); err != nil {
		return nil, nil, err
	}
	return result, selectable(root), nil
}

// isCustom reports whether a kind comes from a CustomResourceDefinition. The name of its component is then derived from the kind.
func (d document) isCustom(kind schema.GroupVersionKind) bool {
	parts := strings.Split(kind.Group, ".")
	slices.Reverse(parts)
	name, _ := d.component(kind)
	return name == strings.Join(append(parts, kind.Version, kind.Kind), ".")
}

// selectable returns the fields that field selectors support.
func selectable(s *spec.Schema) []apiextensionsv1.SelectableField {
	var published []struct{ FieldPath string }
	if s.Extensions.GetObject(selectableExtension, &published) != nil {
		return nil
	}
	var result []apiextensionsv1.SelectableField
	for _, p := range published {
		result = append(result, apiextensionsv1.SelectableField{JSONPath: "." + strings.TrimPrefix(p.FieldPath, ".")})
	}
	return result
}

// expansion replaces references by the schemas they refer to.
type expansion struct {
	document
	// ofCustomResource means that defaults are real. For built-in types, OpenAPI has a default for each Go field that is not a pointer.
	ofCustomResource bool
}

// unknown returns a schema that preserves all fields.
func unknown(types ...string) *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: types}}
	s.AddExtension(preserveExtension, true)
	return s
}

func plainObject() *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
}

// wellKnown returns the schema of components whose published schema is inaccurate. It matches the suffix of the name.
func wellKnown(name string) *spec.Schema {
	switch {
	case strings.HasSuffix(name, ".util.intstr.IntOrString"):
		s := &spec.Schema{}
		s.AddExtension(intOrStringExtension, true)
		return s
	case strings.HasSuffix(name, ".api.resource.Quantity"):
		s := &spec.Schema{SchemaProps: spec.SchemaProps{Pattern: quantity}}
		s.AddExtension(intOrStringExtension, true)
		return s
	case strings.HasSuffix(name, ".runtime.RawExtension"), strings.HasSuffix(name, ".meta.v1.FieldsV1"):
		return unknown("object")
	}
	return nil
}

// schema returns s without references. inside lists the components that contain s, to detect recursion.
func (e expansion) schema(s *spec.Schema, inside []string) (*spec.Schema, error) {
	name := refersTo(s)
	if name == "" {
		return e.object(s, inside)
	}
	target, err := e.target(name, inside)
	if err != nil {
		return nil, err
	}
	if s.Description != "" {
		target.Description = s.Description
	}
	target.Default = e.realDefault(s.Default)
	target.Nullable = target.Nullable || s.Nullable
	for key, value := range s.Extensions {
		target.AddExtension(key, value)
	}
	return target, nil
}

func (e expansion) target(name string, inside []string) (*spec.Schema, error) {
	if known := wellKnown(name); known != nil {
		return known, nil
	}
	component := e.schemas[name]
	if component == nil {
		return nil, fmt.Errorf("OpenAPI refers to %s, which it does not have", name)
	}
	if slices.Contains(inside, name) {
		return unknown(component.Type...), nil
	}
	return e.schema(component, append(slices.Clone(inside), name))
}

// object expands the references inside a schema.
func (e expansion) object(s *spec.Schema, inside []string) (*spec.Schema, error) {
	result := *s
	result.Extensions = spec.Extensions{}
	for key, value := range s.Extensions {
		result.AddExtension(key, value)
	}
	result.Default = e.realDefault(s.Default)
	result.Properties = nil
	for field, property := range s.Properties {
		expanded, err := e.schema(&property, inside)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		if field == "metadata" && isTrue(s, embeddedExtension) {
			expanded = plainObject()
		}
		result.SetProperty(field, *expanded)
	}
	if s.Items == nil { // for example []byte, which is a string
		delete(result.Extensions, listTypeExtension)
		delete(result.Extensions, mapKeysExtension)
	}
	if s.Items != nil && s.Items.Schema != nil {
		items, err := e.schema(s.Items.Schema, inside)
		if err != nil {
			return nil, err
		}
		result.Items = &spec.SchemaOrArray{Schema: items}
		listType(&result)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		values, err := e.schema(s.AdditionalProperties.Schema, inside)
		if err != nil {
			return nil, err
		}
		result.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: values}
	}
	if isTrue(s, embeddedExtension) { // implied by the extension
		result.Required = slices.DeleteFunc(slices.Clone(s.Required), func(field string) bool { return field == "apiVersion" || field == "kind" })
	}
	if len(result.Type) == 0 && !isTrue(&result, intOrStringExtension) {
		result.AddExtension(preserveExtension, true)
	}
	return &result, nil
}

func isTrue(s *spec.Schema, extension string) bool {
	value, _ := s.Extensions.GetBool(extension)
	return value
}

// realDefault returns a default unless it is the zero value of a compiled type.
func (e expansion) realDefault(value any) any {
	if object, ok := value.(map[string]any); ok && len(object) == 0 && !e.ofCustomResource {
		return nil
	}
	if value == nil || (!e.ofCustomResource && reflect.ValueOf(value).IsZero()) {
		return nil
	}
	return value
}

// listType sets the list type of lists in built-in types, from the patch strategy if necessary. Keys of a map become required unless
// they have a default. Lists of items without a schema have no keys.
func listType(list *spec.Schema) {
	items := list.Items.Schema
	if strategy, _ := list.Extensions.GetString(patchStrategyExtension); list.Extensions[listTypeExtension] == nil &&
		strings.Contains(strategy, "merge") {
		if key, found := list.Extensions.GetString(patchKeyExtension); found {
			list.AddExtension(listTypeExtension, "map")
			list.AddExtension(mapKeysExtension, []any{key})
		} else if !items.Type.Contains("object") && !items.Type.Contains("array") {
			list.AddExtension(listTypeExtension, "set")
		}
	}
	keys, _ := list.Extensions.GetStringSlice(mapKeysExtension)
	for _, key := range keys {
		property, known := items.Properties[key]
		if !known {
			delete(list.Extensions, listTypeExtension)
			delete(list.Extensions, mapKeysExtension)
			return
		}
		if property.Default == nil && !slices.Contains(items.Required, key) {
			items.Required = append(slices.Clone(items.Required), key)
		}
	}
}
