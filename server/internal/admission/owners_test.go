package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

func TestTheNumberOfOwnersIsBounded(t *testing.T) {
	with := func(n int) runtime.Object {
		obj := &corev1.ConfigMap{}
		for i := range n {
			obj.OwnerReferences = append(obj.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i)})
		}
		return obj
	}
	for _, c := range []struct {
		obj, old runtime.Object
		refused  bool
	}{
		{with(maxOwners), nil, false},
		{with(maxOwners + 1), nil, true},
		{with(maxOwners + 1), with(1), true},
		{with(maxOwners + 1), with(maxOwners + 2), false},
		{nil, nil, false},
	} {
		operation := admission.Create
		if c.old != nil {
			operation = admission.Update
		}
		err := boundedOwners{}.Validate(t.Context(), admission.NewAttributesRecord(c.obj, c.old, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "", "x",
			corev1.SchemeGroupVersion.WithResource("configmaps"), "", operation, nil, false, nil), nil)
		if c.refused != (err != nil) || (err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the limit is 100"))) {
			t.Errorf("%d owners, %d before: %v", owners(c.obj), owners(c.old), err)
		}
	}
}
