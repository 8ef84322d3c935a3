// Package customresources tests that every logical cluster can define its own resources.
package customresources

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each test has its own logical clusters in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

var widgets = schema.GroupVersionResource{Group: "demo.example.com", Version: "v1", Resource: "widgets"}

// widgetDefinition returns a definition of widgets whose spec has these properties.
func widgetDefinition(spec map[string]apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.Resource + "." + widgets.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: widgets.Resource, Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"wg"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec":   {Type: "object", Description: "What the widget should be.", Properties: spec},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}}},
					},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}},
			}},
		},
	}
}

// sized returns the properties of widgets in most tests.
func sized() map[string]apiextensionsv1.JSONSchemaProps {
	smallest := 1.0
	return map[string]apiextensionsv1.JSONSchemaProps{
		"size":     {Type: "integer", Minimum: &smallest, Description: "How large the widget is."},
		"color":    {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
		"replicas": {Type: "integer"},
	}
}
