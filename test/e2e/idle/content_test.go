package idle

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const group = "idle.example.com"

var things = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}

// every is the interval of clusters with a unique schema, which is compiled for one cluster only.
const every = 10

// definition returns a definition of things with a description that makes it unique.
func definition(description string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: things.Resource + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: things.Resource, Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: things.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Description: description, Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
					}},
				},
			}},
		},
	}
}

// fill uses clusters as a tenant would.
func (s *target) fill(t *testing.T, clusters []string) {
	t.Helper()
	all := map[string]int{}
	for i, name := range clusters {
		all[name] = i
	}
	each(t, clusters, func(ctx context.Context, name string) error {
		cluster := s.Named(name)
		client := cluster.Kube(t, kcptest.Masters)
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := client.CoreV1().Secrets("work").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := client.RbacV1().Roles("work").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		description := "A thing."
		if all[name]%every == 0 {
			// The descriptions repeat in every round, because the server caches schemas up to a limit.
			description = fmt.Sprintf("A thing of the cluster %d only.", all[name])
		}
		cluster.Define(t, definition(description))
		_, err := cluster.Dynamic(t, kcptest.Masters).Resource(things).Namespace("work").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": things.GroupVersion().String(), "kind": "Thing", "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"size": int64(1)},
		}}, metav1.CreateOptions{})
		if err == nil && all[name]%every == 0 {
			s.use(t, name)
		}
		return err
	})
}
