package customresources

import (
	"context"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestTheDefinitionsOfTheServerAreValid(t *testing.T) {
	all, err := SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v1 := range all {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
			t.Fatal(err)
		}
		if errs := ValidateDefinition(context.Background(), crd); len(errs) > 0 {
			t.Errorf("%s: %v", crd.Name, errs.ToAggregate())
		}
	}
}
