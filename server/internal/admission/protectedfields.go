package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// protectedAnnotations are the annotations that only the server, or an administrator, sets: webhooks and policies cannot change them. Users
// cannot change those in placeAnnotations and treeAnnotations, either.
var protectedAnnotations = slices.Concat(statusAnnotations, placeAnnotations, []string{
	corev1alpha1.PathAnnotation, corev1alpha1.MaxTotalObjectsAnnotation, corev1alpha1.RequiredGroupsAnnotation,
	tenancyv1alpha1.OwnerAnnotation, tenancyv1alpha1.TypeAnnotation, tenancyv1alpha1.TypeClusterAnnotation,
	tenancyv1alpha1.AncestorsAnnotation, tenancyv1alpha1.OwnerShardAnnotation, tenancyv1alpha1.SignersAnnotation,
	apisv1alpha2.ResourceBindingsAnnotation,
})

// protectedFields are the fields that only the server, or a user that may act for it, sets, by the resource that has them.
var protectedFields = map[string][][]string{
	workspaceResource.String():      {{"spec", "cluster"}, {"spec", "URL"}, {"status"}},
	logicalClusterResource.String(): {{"spec"}, {"status"}},
}

// withProtection calls change, by which policies or webhooks of tenants change an object, and refuses the request if they have changed
// protected annotations or fields. The rules for those depend on the user who writes the object, which is not who changes it here.
func withProtection(a admission.Attributes, change func() error) error {
	before := protectedValues(a)
	if err := change(); err != nil || before == nil {
		return err
	}
	after := protectedValues(a)
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !reflect.DeepEqual(before[field], after[field]) {
			return forbidden(a, "%s is set by the system: mutating webhooks and policies cannot change it", field)
		}
	}
	return nil
}

// protectedValues returns the values of protected annotations and fields of an object, by their names; nil if there is no object.
func protectedValues(a admission.Attributes) map[string]any {
	if a.GetObject() == nil {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	all := map[string]any{}
	for _, key := range protectedAnnotations {
		if value, ok := m.GetAnnotations()[key]; ok {
			all["annotation "+key] = value
		}
	}
	if u, ok := a.GetObject().(*unstructured.Unstructured); ok {
		for _, path := range protectedFields[a.GetResource().GroupResource().String()] {
			if value, found, _ := unstructured.NestedFieldNoCopy(u.Object, path...); found {
				all[strings.Join(path, ".")] = runtime.DeepCopyJSONValue(value)
			}
		}
	}
	return all
}
