package storage

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// A state that is no longer the stored one must not overwrite what others have stored.
func TestAKnownStateIsRevisedOnlyIfItIsTheStoredOne(t *testing.T) {
	s := newSliceStorage(t)
	ctx := in("a")
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice", UID: "1"}}
	slice.SetGroupVersionKind(sliceKind)
	if err := s.typed.Create(ctx, "slice", slice); err != nil {
		t.Fatal(err)
	}
	first := &apisv1alpha1.APIExportEndpointSlice{}
	if err := s.typed.Get(ctx, "slice", first); err != nil {
		t.Fatal(err)
	}
	revise := func(known *apisv1alpha1.APIExportEndpointSlice, label string) (result *apisv1alpha1.APIExportEndpointSlice, seen []string) {
		t.Helper()
		result = &apisv1alpha1.APIExportEndpointSlice{}
		if err := s.typed.Revise(ctx, "slice", known, result, func(obj runtime.Object) error {
			live := obj.(*apisv1alpha1.APIExportEndpointSlice)
			seen = append(seen, live.ResourceVersion)
			metav1.SetMetaDataLabel(&live.ObjectMeta, label, "")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return result, seen
	}
	second, seen := revise(first.DeepCopy(), "one")
	if len(seen) != 1 || seen[0] != first.ResourceVersion || second.ResourceVersion == first.ResourceVersion {
		t.Errorf("it was changed from %v to %s, want once from %s", seen, second.ResourceVersion, first.ResourceVersion)
	}
	third, seen := revise(first.DeepCopy(), "two")
	if len(seen) != 2 || seen[1] != second.ResourceVersion || len(third.Labels) != 2 {
		t.Errorf("it was changed from %v to %v, want from %s at last", seen, third.Labels, second.ResourceVersion)
	}
	err := s.typed.Revise(ctx, "other", first.DeepCopy(), &apisv1alpha1.APIExportEndpointSlice{}, func(runtime.Object) error { return nil })
	if !apierrors.IsNotFound(err) {
		t.Errorf("of an object that does not exist: %v", err)
	}
}
