package apiconversion_test

import (
	"context"
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/apiconversion"
)

// A timeout is in seconds in v1, and in minutes in v2. The remaining seconds, which minutes cannot represent, are
// preserved.
func ExampleConverter() {
	spec := &apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{
		{From: "v1", To: "v2", Rules: []apisv1alpha1.APIConversionRule{{Field: "seconds", Destination: "minutes", Transformation: "self / 60"}}},
		{From: "v2", To: "v1", Rules: []apisv1alpha1.APIConversionRule{{Field: "minutes", Destination: "seconds", Transformation: "self * 60"}}},
	}}
	having := func(field string) *structuralschema.Structural {
		return &structuralschema.Structural{
			Generic:    structuralschema.Generic{Type: "object"},
			Properties: map[string]structuralschema.Structural{field: {Generic: structuralschema.Generic{Type: "integer"}}},
		}
	}
	schemas := map[string]*structuralschema.Structural{"v1": having("seconds"), "v2": having("minutes")}
	converter, errs := apiconversion.Compile(spec, schemas, apiconversion.Options{})
	if len(errs) > 0 {
		panic(errs.ToAggregate())
	}
	ctx := context.Background()
	timer := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/v1", "kind": "Timer", "metadata": map[string]any{"name": "tea"}, "seconds": int64(150),
	}}
	inV2, err := converter.Convert(ctx, timer, "v2")
	if err != nil {
		panic(err)
	}
	fmt.Println(inV2.Object["minutes"], inV2.GetAnnotations()[apiconversion.Annotation("v1")])

	inV1, err := converter.Convert(ctx, inV2, "v1")
	if err != nil {
		panic(err)
	}
	fmt.Println(inV1.Object["seconds"], inV1.GetAnnotations())

	inV2.Object["minutes"] = int64(5)
	if inV1, err = converter.Convert(ctx, inV2, "v1"); err != nil {
		panic(err)
	}
	fmt.Println(inV1.Object["seconds"], inV1.GetAnnotations())
	// Output:
	// 2 {"values":{"seconds":150}}
	// 150 map[]
	// 300 map[]
}
