// Package crd parses and validates CustomResourceDefinitions.
package crd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Kind is the kind of definitions.
const Kind = "CustomResourceDefinition"

// Read returns the definitions in a stream of YAML or JSON documents. It accepts lists, as kubectl get prints them. Other kinds are an
// error, and so are unknown fields: dropping them would change the definition.
func Read(from io.Reader) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	documents := utilyaml.NewYAMLReader(bufio.NewReader(from))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		found, err := parse(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		definitions = append(definitions, found...)
	}
	if len(definitions) == 0 {
		return nil, fmt.Errorf("no %s found", Kind)
	}
	return definitions, nil
}

// parse returns the definitions in one document, which may be empty.
func parse(document []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Items           []runtime.RawExtension `json:"items"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	switch {
	case head.TypeMeta == metav1.TypeMeta{} && head.Items == nil:
		return nil, nil // an empty document
	case head.Kind == "List" || head.Kind == Kind+"List":
		var all []*apiextensionsv1.CustomResourceDefinition
		for _, item := range head.Items {
			found, err := parse(item.Raw)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	case head.Kind != Kind:
		return nil, fmt.Errorf("expected a %s, got a %s", Kind, head.Kind)
	case head.APIVersion != apiextensionsv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("expected a %s of %s, got %s", Kind, apiextensionsv1.SchemeGroupVersion, head.APIVersion)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(document, definition); err != nil {
		return nil, err
	}
	return []*apiextensionsv1.CustomResourceDefinition{definition}, nil
}

// Clean returns a copy of the definition without status and server-specific metadata.
func Clean(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	clean := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Name: definition.Name, Labels: definition.Labels},
		Spec:       *definition.Spec.DeepCopy(),
	}
	for key, value := range definition.Annotations {
		if key != "kubectl.kubernetes.io/last-applied-configuration" && key != corev1alpha1.ClusterAnnotation {
			metav1.SetMetaDataAnnotation(&clean.ObjectMeta, key, value)
		}
	}
	return clean
}

// undotted are the groups of Kubernetes without a dot, including core. kcp accepts definitions in them; no server accepts definitions in
// other groups without a dot.
var undotted = []string{"", "apps", "autoscaling", "batch", "extensions", "policy"}

// Problems returns the reasons why kcp rejects a definition.
func Problems(definition *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	definition = definition.DeepCopy()
	if slices.Contains(undotted, definition.Spec.Group) {
		definition.Spec.Group = "undotted.example.com" // placeholder that passes validation, to validate everything else
		definition.Name = definition.Spec.Names.Plural + "." + definition.Spec.Group
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition,
		internal, nil); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), internal)
}
