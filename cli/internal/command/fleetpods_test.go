package command

import (
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/cli/internal/fleet"
)

func TestImportsOfPodsFailIfTheWorkspacePrunesTheVerbs(t *testing.T) {
	pods := &apiextensionsv1.CustomResourceDefinition{}
	pods.Spec.Names.Plural, pods.Spec.Versions = "pods", []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}}
	if !fleet.IsPods(pods) {
		t.Fatal("pods are not recognized")
	}
	objects := fake.NewSimpleDynamicClient(runtime.NewScheme())
	if err := readPods(t.Context(), objects, pods, "https://fleet.example.com:6444"); err != nil {
		t.Fatal(err)
	}
	objects.PrependReactor("update", "endpoints", func(action clienttesting.Action) (bool, runtime.Object, error) {
		u := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		for _, e := range u.Object["status"].(map[string]any)["endpoints"].([]any) {
			delete(e.(map[string]any), "verbs")
		}
		return false, nil, nil
	})
	if err := readPods(t.Context(), objects, pods, "https://fleet.example.com:6444"); !errors.Is(err, errOldEndpoint) {
		t.Errorf("got %v", err)
	}
}
