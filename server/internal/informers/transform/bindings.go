package transform

import (
	"hash/maphash"
	"reflect"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// APIBinding trims an APIBinding, and shares its status with other bindings of the export, which are mostly equal.
func (t *Trimmer) APIBinding(obj runtime.Object) {
	b := obj.(*apisv1alpha2.APIBinding)
	b.TypeMeta = metav1.TypeMeta{}
	t.meta(&b.ObjectMeta)
	of := ""
	if export := b.Spec.Reference.Export; export != nil {
		export.Path, export.Name = t.string(export.Path), t.string(export.Name)
		of = export.Name
	}
	b.Annotations = t.annotations(b.Annotations)
	status := &b.Status
	status.APIExportClusterName, status.Phase = t.string(status.APIExportClusterName),
		apisv1alpha2.APIBindingPhase(t.string(string(status.Phase)))
	slot := &t.bindings[maphash.String(t.seed, status.APIExportClusterName+"|"+of)%remembered]
	if *slot == nil {
		*slot = &apisv1alpha2.APIBindingStatus{}
	}
	share(&(*slot).BoundResources, &status.BoundResources)
	share(&(*slot).ExportPermissionClaims, &status.ExportPermissionClaims)
	share(&(*slot).AppliedPermissionClaims, &status.AppliedPermissionClaims)
	status.Conditions = slices.Clip(slices.Clone(status.Conditions))
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = t.string(c.Type), metav1.ConditionStatus(t.string(string(c.Status)))
		c.Reason, c.Message = t.string(c.Reason), t.string(c.Message)
	}
	share(&(*slot).Conditions, &status.Conditions) // equal if bound in the same second
}

// ClusterRoleBinding trims a ClusterRoleBinding. Most refer to the same roles, and users have many.
func (t *Trimmer) ClusterRoleBinding(obj runtime.Object) {
	b := obj.(*rbacv1.ClusterRoleBinding)
	b.TypeMeta = metav1.TypeMeta{}
	t.meta(&b.ObjectMeta)
	b.Name = t.string(b.Name)
	b.Annotations = t.annotations(b.Annotations)
	b.RoleRef = rbacv1.RoleRef{APIGroup: t.string(b.RoleRef.APIGroup), Kind: t.string(b.RoleRef.Kind), Name: t.string(b.RoleRef.Name)}
	for i, s := range b.Subjects {
		b.Subjects[i] = rbacv1.Subject{
			APIGroup: t.string(s.APIGroup), Kind: t.string(s.Kind), Name: t.string(s.Name), Namespace: t.string(s.Namespace),
		}
	}
}

// annotations returns m without spare capacity, with strings that objects share.
func (t *Trimmer) annotations(m map[string]string) map[string]string {
	exact := make(map[string]string, len(m))
	for key, value := range m {
		exact[t.string(key)] = t.string(value)
	}
	return exact
}

// share replaces own by others if they are equal, and otherwise others by own.
func share[T any](others, own *[]T) {
	if !reflect.DeepEqual(*others, *own) {
		*others = *own
	}
	*own = *others
}
