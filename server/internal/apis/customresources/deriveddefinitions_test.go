package customresources

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// boundWidgets returns the binding mine of the cluster a, and the definition of its API.
func boundWidgets(t *testing.T) (*apisv1alpha2.APIBinding, *Definition) {
	t.Helper()
	schema := widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}}
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://provider.internal"), CABundle: []byte("authority")},
		}}
	})
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{
		Name: "mine", UID: "u", CreationTimestamp: metav1.Unix(1700000000, 0), Annotations: map[string]string{logicalcluster.AnnotationKey: "a"},
	}}
	binding.Status.BoundResources = []apisv1alpha2.BoundAPIResource{
		{Group: "example.org", Resource: "gadgets", StorageVersions: []string{"v7"}},
		{Group: "example.org", Resource: "widgets", StorageVersions: []string{"v1alpha1", "v1"}},
	}
	return binding, newDefinition("hash", sharing{Identity: "identity"}, schema, nil)
}

func TestADerivedDefinitionIsTerminatingWithItsBinding(t *testing.T) {
	binding, d := boundWidgets(t)
	deleted := metav1.Unix(1700000060, 0)
	binding.DeletionTimestamp = &deleted
	got := derivedDefinition(d, binding)
	if !deleted.Equal(got.DeletionTimestamp) || !slices.Equal(got.Finalizers, []string{"customresourcecleanup.apiextensions.k8s.io"}) {
		t.Errorf("got %v", got.ObjectMeta)
	}
	if !apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Terminating) || !apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Established) {
		t.Errorf("got %v", got.Status.Conditions)
	}
}

func TestADerivedDefinitionDescribesTheBoundAPI(t *testing.T) {
	binding, d := boundWidgets(t)
	served := d.stored.DeepCopy()
	got := derivedDefinition(d, binding)
	want := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "widgets.example.org", UID: "6803d760-64f0-506e-9106-cf8ef89363eb", CreationTimestamp: binding.CreationTimestamp,
			Annotations: map[string]string{logicalcluster.AnnotationKey: "a", "apis.kcp.io/derived-from-binding": "mine"},
		},
		Spec: served.Spec,
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: served.Spec.Names, StoredVersions: []string{"v1alpha1", "v1"},
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: "NamesAccepted", Status: "True", Reason: "NoConflicts", Message: "no conflicts found", LastTransitionTime: binding.CreationTimestamp},
				{Type: "Established", Status: "True", Reason: "InitialNamesAccepted", Message: "the initial names have been accepted", LastTransitionTime: binding.CreationTimestamp},
			},
		},
	}
	want.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got.Spec.Versions[0].Schema.OpenAPIV3Schema.Type = "changed"
	if diff := cmp.Diff(served, d.stored); diff != "" {
		t.Errorf("what is served has changed: %s", diff)
	}
	binding.Status.BoundResources = nil
	if got := derivedDefinition(d, binding).Status.StoredVersions; !cmp.Equal(got, []string{"v1"}) {
		t.Errorf("the stored versions of a resource without any are %v", got)
	}
}

func TestVisibilityOfDerivedDefinitions(t *testing.T) {
	s := newShard(t)
	binding, d := boundWidgets(t)
	if err := s.config.Bindings.Indexer().Add(binding); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []logicalcluster.Name{"a", "off"} {
		s.registry.replace(cluster, d.Key(), Installed{Definition: d, Binding: "mine"})
	}
	s.registry.replace("a", "own.example.org", Installed{Definition: newDefinition("own", sharing{}, widgets(), nil)})
	source := DerivedDefinitions{
		On:      func(cluster logicalcluster.Name) bool { return cluster != "off" },
		Handler: func() *Handler { return s.Handler },
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		sees int
	}{
		"a client":                    {inCluster("a"), 1},
		"the server":                  {authorization.AsServer(inCluster("a")), 0},
		"a client of another cluster": {inCluster("b"), 0},
		"where it is not switched on": {inCluster("off"), 0},
		"without a binding":           {inCluster("c"), 0},
	} {
		list, err := source.List(c.ctx)
		if err != nil || len(list) != c.sees {
			t.Errorf("%s lists %v, %v", name, list, err)
		}
		if obj, err := source.Get(c.ctx, "widgets.example.org"); err != nil || (obj != nil) != (c.sees == 1) {
			t.Errorf("%s gets %v, %v", name, obj, err)
		}
	}
	if obj, err := source.Get(inCluster("a"), "own.example.org"); err != nil || obj != nil {
		t.Errorf("a definition of the cluster's own is derived: %v, %v", obj, err)
	}
	s.set("a", widgets())
	s.registry.replace("a", d.Key(), Installed{Definition: d, Binding: "mine"})
	if list, err := source.List(inCluster("a")); err != nil || len(list) != 0 {
		t.Errorf("with a stored definition of the name, %v is listed, %v", list, err)
	}
	obj, err := source.Get(inCluster("a"), "widgets.example.org")
	if err != nil {
		t.Fatal(err)
	}
	if crd := obj.(*apiextensions.CustomResourceDefinition); crd.Name != "widgets.example.org" || crd.Spec.Names.Kind != "Widget" {
		t.Errorf("got %v", crd)
	}
}
