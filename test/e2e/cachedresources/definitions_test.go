package cachedresources

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestDefinitionOfVirtuallyBoundResourceIsNotServed(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	c := consumer(t, provider(t))
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: regions.GroupResource().String()}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: regions.Group, Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: regions.Resource, Singular: "region", Kind: "Region", ListKind: "RegionList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}
	definitions := c.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "its names are not accepted", func(ctx context.Context) error {
		got, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		refused := 0
		for _, condition := range got.Status.Conditions {
			of := condition.Type == apiextensionsv1.NamesAccepted || condition.Type == apiextensionsv1.Established
			if of && condition.Status == apiextensionsv1.ConditionFalse {
				refused++
			}
		}
		if refused != 2 {
			return fmt.Errorf("got conditions %v", got.Status.Conditions)
		}
		return nil
	})
	list, err := c.Objects(t, regions).List(ctx, metav1.ListOptions{})
	if err != nil || names(t, list, c) != "north" {
		t.Errorf("got regions %v, %v", list, err)
	}
}
