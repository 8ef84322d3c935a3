// Package transform reduces the memory of the objects in informers. It drops fields that no reader needs, and lets objects share equal
// parts. The fields that it drops are declared in informers.Kinds.
package transform

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// LogicalCluster trims a LogicalCluster. It keeps conditions only while the object is being deleted.
func LogicalCluster(obj runtime.Object) {
	lc := obj.(*corev1alpha1.LogicalCluster)
	lc.TypeMeta = metav1.TypeMeta{}
	lc.ManagedFields = nil
	if lc.DeletionTimestamp == nil {
		lc.Status.Conditions = nil
	}
}

// Workspace trims a Workspace. It drops conditions, and the annotation that has the same value as spec.cluster.
func Workspace(obj runtime.Object) {
	ws := obj.(*tenancyv1alpha1.Workspace)
	ws.TypeMeta = metav1.TypeMeta{}
	ws.ManagedFields = nil
	ws.Status.Conditions = nil
	if ws.Spec.Cluster != "" {
		delete(ws.Annotations, tenancyv1alpha1.ClusterAnnotation)
	}
}

// CustomResourceDefinition trims a CustomResourceDefinition.
func CustomResourceDefinition(obj runtime.Object) {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	crd.ManagedFields = nil
	delete(crd.Annotations, corev1.LastAppliedConfigAnnotation)
}
