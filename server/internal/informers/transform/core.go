package transform

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Namespace trims a Namespace.
func Namespace(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.TypeMeta, ns.ManagedFields = metav1.TypeMeta{}, nil
}

// ServiceAccount trims a ServiceAccount.
func ServiceAccount(obj runtime.Object) {
	account := obj.(*corev1.ServiceAccount)
	account.TypeMeta, account.ManagedFields = metav1.TypeMeta{}, nil
}
