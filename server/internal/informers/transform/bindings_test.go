package transform

import (
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

func binding(cluster, export, identity string) *apisv1alpha2.APIBinding {
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"get"}}
	return &apisv1alpha2.APIBinding{
		TypeMeta: metav1.TypeMeta{Kind: "APIBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name: export, UID: "u", Finalizers: []string{apisv1alpha2.APIBindingFinalizer}, Annotations: map[string]string{"kcp.io/cluster": cluster},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root:p", Name: export}}},
		Status: apisv1alpha2.APIBindingStatus{
			APIExportClusterName: "p", Phase: "Bound",
			BoundResources:         []apisv1alpha2.BoundAPIResource{{Group: "g", Resource: export, Schema: apisv1alpha2.BoundAPIResourceSchema{IdentityHash: identity}}},
			ExportPermissionClaims: []apisv1alpha2.PermissionClaim{claim},
			Conditions:             []corev1alpha1.Condition{{Type: "Ready", Status: "True"}},
		},
	}
}

func TestBindingsOfAnExportShareEqualParts(t *testing.T) {
	trimmer := New()
	for i := range 3 * remembered {
		cluster, export, identity := fmt.Sprint("c", i), fmt.Sprint("e", i%(2*remembered)), fmt.Sprint("i", i%2)
		one, other := binding(cluster, export, identity), binding(cluster+"x", export, identity)
		trimmer.APIBinding(one)
		trimmer.APIBinding(other)
		if &one.Status.BoundResources[0] != &other.Status.BoundResources[0] || &one.Status.ExportPermissionClaims[0] != &other.Status.ExportPermissionClaims[0] {
			t.Fatal("equal resources are not shared")
		}
		want := binding(cluster, export, identity)
		want.TypeMeta, want.ManagedFields = metav1.TypeMeta{}, nil
		if !reflect.DeepEqual(one, want) {
			t.Fatalf("got %+v, want %+v", one, want)
		}
	}
}
