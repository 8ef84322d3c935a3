package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// idleFor is how long a definition has no objects, so that the garbage collector knows it and waits for the first one.
const idleFor = time.Second

// The garbage collector lists a resource when its first object is stored. It must not decide about the owner of that object before.
func TestTheFirstObjectOfAResourceIsADependent(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ctx, cluster := kcptest.Context(t), server.Cluster(t)
			group := kcptest.Suffix() + ".example.org"
			cluster.Apply(t, definition(group, "gadgets", "Gadget", "v1"))
			cluster.WaitForDefinition(t, "gadgets."+group)
			gadgets := cluster.Dynamic(t, kcptest.Masters).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"})
			roles := cluster.Kube(t, kcptest.Masters).RbacV1().ClusterRoles()
			owner, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(idleFor)
			dependent := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Gadget"}}
			dependent.SetName("dependent")
			block := true
			dependent.SetOwnerReferences([]metav1.OwnerReference{
				{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &block},
			})
			if _, err := gadgets.Create(ctx, dependent, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := roles.Delete(ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			kcptest.Eventually(t, "the owner is deleted, and the dependent follows the policy", func(ctx context.Context) error {
				if _, err := roles.Get(ctx, owner.Name, metav1.GetOptions{}); kcptest.Gone(err) != nil {
					return fmt.Errorf("the owner: %w", kcptest.Gone(err))
				}
				left, err := gadgets.Get(ctx, "dependent", metav1.GetOptions{})
				if policy != metav1.DeletePropagationOrphan {
					return kcptest.Gone(err)
				}
				if err == nil && len(left.GetOwnerReferences()) > 0 {
					return fmt.Errorf("got owner references %v", left.GetOwnerReferences())
				}
				return err
			})
		})
	}
}
