// Package transform makes what informers keep of the objects that every workspace has small: it drops what nobody reads, and lets objects
// share what they have in common.
package transform

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// LogicalCluster trims one. Its conditions are left while it is being deleted only.
func LogicalCluster(obj runtime.Object) {
	lc := obj.(*corev1alpha1.LogicalCluster)
	lc.TypeMeta = metav1.TypeMeta{}
	lc.ManagedFields = nil
	if lc.DeletionTimestamp == nil {
		lc.Status.Conditions = nil
	}
}

// Workspace trims one. It has no conditions, nor the annotation that spec.cluster says as well.
func Workspace(obj runtime.Object) {
	ws := obj.(*tenancyv1alpha1.Workspace)
	ws.TypeMeta = metav1.TypeMeta{}
	ws.ManagedFields = nil
	ws.Status.Conditions = nil
	if ws.Spec.Cluster != "" {
		delete(ws.Annotations, tenancyv1alpha1.ClusterAnnotation)
	}
}
