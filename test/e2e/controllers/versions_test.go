package controllers

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// definition returns the definition of a cluster-scoped resource with one version.
func definition(group, plural, kind, version string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: Cluster
  names: {plural: %[2]s, kind: %[3]s}
  versions:
  - name: %[4]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, plural, kind, version)
}

// All clusters are watched in one version, which other clusters may not have.
func TestOwnerReferencesIgnoreVersionsOfOtherClusters(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	group := kcptest.Suffix() + ".example.org"
	theirs.Apply(t, definition(group, "gadgets", "Gadget", "v9"))
	theirs.Command(t, "kubectl", kcptest.Masters).Input(definition("tenancy.kcp.io", "workspaces", "Workspace", "v9")).Fail(t, "apply", "-f", "-")
	theirs.WaitForDefinition(t, "gadgets."+group)
	ours.Apply(t, definition(group, "gadgets", "Gadget", "v1"))
	ours.WaitForDefinition(t, "gadgets."+group)

	gadgets := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	configMaps := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	for resource, kind := range map[schema.GroupVersionResource]string{gadgets: "Gadget", kcptest.Workspaces: "Workspace"} {
		client := ours.Dynamic(t, kcptest.Masters).Resource(resource)
		object := func(name string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name},
			}}
		}
		owner, err := client.Create(ctx, object("owner"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reference := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
		dependent := object("dependent")
		dependent.SetOwnerReferences([]metav1.OwnerReference{reference})
		if _, err := client.Create(ctx, dependent, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: resource.Resource, OwnerReferences: []metav1.OwnerReference{reference}}}
		if _, err := configMaps.Create(ctx, other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the dependents of the "+kind+" are deleted", func(ctx context.Context) error {
			if _, err := client.Get(ctx, "dependent", metav1.GetOptions{}); kcptest.Gone(err) != nil {
				return fmt.Errorf("the %s: %w", kind, kcptest.Gone(err))
			}
			_, err := configMaps.Get(ctx, other.Name, metav1.GetOptions{})
			return kcptest.Gone(err)
		})
	}
}
