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

// keptAnnotations are what the server, or who may write it as its administrator, says of an object.
var keptAnnotations = slices.Concat(statusAnnotations, placeAnnotations, []string{
	corev1alpha1.PathAnnotation, corev1alpha1.MaxTotalObjectsAnnotation, corev1alpha1.RequiredGroupsAnnotation,
	tenancyv1alpha1.OwnerAnnotation, tenancyv1alpha1.TypeAnnotation, tenancyv1alpha1.TypeClusterAnnotation,
	apisv1alpha2.ResourceBindingsAnnotation,
})

// keptFields are those that only the server writes, or who may act for it, by the resources that have them.
var keptFields = map[string][][]string{
	workspaceResource.String():      {{"spec", "cluster"}, {"spec", "URL"}, {"status"}},
	logicalClusterResource.String(): {{"spec"}, {"status"}},
}

// untampered lets policies or webhooks of tenants change an object, but not what the server says in it. Rules about that look
// at who writes the object; those who change it on its way are others.
func untampered(a admission.Attributes, change func() error) error {
	before := said(a)
	if err := change(); err != nil || before == nil {
		return err
	}
	after := said(a)
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !reflect.DeepEqual(before[field], after[field]) {
			return forbidden(a, "%s is written by the system: no mutating webhook or policy changes it", field)
		}
	}
	return nil
}

// said returns what the server says in an object, by its field; nil if there is no object.
func said(a admission.Attributes) map[string]any {
	if a.GetObject() == nil {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	all := map[string]any{}
	for _, key := range keptAnnotations {
		if value, ok := m.GetAnnotations()[key]; ok {
			all["annotation "+key] = value
		}
	}
	if u, ok := a.GetObject().(*unstructured.Unstructured); ok {
		for _, path := range keptFields[a.GetResource().GroupResource().String()] {
			if value, found, _ := unstructured.NestedFieldNoCopy(u.Object, path...); found {
				all[strings.Join(path, ".")] = runtime.DeepCopyJSONValue(value)
			}
		}
	}
	return all
}
