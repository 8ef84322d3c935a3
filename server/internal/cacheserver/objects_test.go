package cacheserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnObjectIsStoredAsItsShardWroteIt(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	obj := object("things", map[string]string{OriginalUID: "original", "kcp.io/cluster": "forged", "kcp.io/shard": "forged"})
	obj.SetUID("original")
	obj.SetGeneration(7)
	obj.SetFinalizers([]string{"example.com/finalizer"})
	made := create(t, c, obj)
	uid, created := made.GetUID(), made.GetCreationTimestamp()
	if uid == "original" || uid == "" || made.GetResourceVersion() == "" || !created.Time.Equal(began) {
		t.Errorf("the server did not set its own metadata: %v", made.Object["metadata"])
	}
	want := obj.DeepCopy()
	want.SetUID(made.GetUID())
	want.SetResourceVersion(made.GetResourceVersion())
	want.SetCreationTimestamp(made.GetCreationTimestamp())
	want.SetAnnotations(map[string]string{OriginalUID: "original", "kcp.io/cluster": "one", "kcp.io/shard": "alpha"})
	if diff := cmp.Diff(want.Object, made.Object); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}

	changed := made.DeepCopy()
	changed.Object["spec"] = map[string]any{"other": int64(1)}
	changed.Object["status"] = map[string]any{"phase": "Ready"}
	changed, err := c.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want.Object["spec"], want.Object["status"] = map[string]any{"other": int64(1)}, map[string]any{"phase": "Ready"}
	want.SetResourceVersion(changed.GetResourceVersion())
	if diff := cmp.Diff(want.Object, changed.Object); diff != "" {
		t.Errorf("an update changes spec and status, and not the generation (-want +got):\n%s", diff)
	}
	if _, err := c.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}

	patched, err := c.Patch(t.Context(), "things", types.MergePatchType, []byte(`{"spec":{"other":2}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want.Object["spec"] = map[string]any{"other": int64(2)}
	want.SetResourceVersion(patched.GetResourceVersion())
	got, err := c.Get(t.Context(), "things", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("a merge patch (-want +got):\n%s", diff)
	}

	other := types.UID("other")
	err = c.Delete(t.Context(), "things", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		t.Errorf("a deletion of another object: %v", err)
	}
	if err := c.Delete(t.Context(), "things", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "things", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object with finalizers is still there: %v", err)
	}
}

func TestListsSelectShardsAndLogicalClusters(t *testing.T) {
	s := start(t, nil)
	for _, shard := range []string{"alpha", "alpha-2"} {
		for _, cluster := range []string{"one", "one2"} {
			create(t, in(t, s.shard(t, shard), shard, cluster).Resource(exports), object("things", nil))
		}
	}
	reader := s.shard(t, "reader")
	for place, want := range map[[2]string][]string{
		{"alpha", "one"}:     {"alpha/one/things"},
		{"alpha", "*"}:       {"alpha/one/things", "alpha/one2/things"},
		{"*", "one"}:         {"alpha/one/things", "alpha-2/one/things"},
		{"*", "*"}:           {"alpha-2/one/things", "alpha-2/one2/things", "alpha/one/things", "alpha/one2/things"},
		{"alpha-2", "two"}:   nil,
		{"alph", "*"}:        nil,
		{"reader", "one"}:    nil,
		{"%2A", "one2"}:      {"alpha/one2/things", "alpha-2/one2/things"},
		{"alpha-2", "*"}:     {"alpha-2/one/things", "alpha-2/one2/things"},
		{"alpha-2", "one2"}:  {"alpha-2/one2/things"},
		{"alpha", "one-two"}: nil,
	} {
		list, err := in(t, reader, place[0], place[1]).Resource(exports).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := names(list)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", place, diff)
		}
		if list.GetKind() != "APIExportList" || list.GetAPIVersion() != "apis.kcp.io/v1alpha2" {
			t.Errorf("%v: a list of %s %s", place, list.GetAPIVersion(), list.GetKind())
		}
	}
	found, err := in(t, reader, "*", "one").Resource(exports).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=other"})
	if err != nil || len(found.Items) != 0 {
		t.Errorf("selected by another name: %v, %v", names(found), err)
	}
}

func TestAnObjectNeedsANameAndAPlace(t *testing.T) {
	s := start(t, nil)
	alpha := s.shard(t, "alpha")
	c := in(t, alpha, "alpha", "one").Resource(exports)
	nameless := object("", nil)
	nameless.SetGenerateName("things-")
	for message, obj := range map[string]*unstructured.Unstructured{
		"no name":      nameless,
		"a path":       object("a/b", nil),
		"dots":         object("..", nil),
		"a namespace":  func() *unstructured.Unstructured { u := object("things", nil); u.SetNamespace("x"); return u }(),
		"another kind": func() *unstructured.Unstructured { u := object("things", nil); u.SetKind("APIBinding"); return u }(),
		"a version":    func() *unstructured.Unstructured { u := object("things", nil); u.SetResourceVersion("1"); return u }(),
		"no number":    object("things", map[string]string{LeaderTerm: "first"}),
	} {
		if _, err := c.Create(t.Context(), obj, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", message, err)
		}
	}
	create(t, c, object("things", nil))
	if _, err := c.Create(t.Context(), object("things", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same name again: %v", err)
	}
	if _, err := c.Update(t.Context(), object("others", nil), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an update of what does not exist: %v", err)
	}
	for _, place := range [][2]string{{"*", "one"}, {"alpha", "*"}, {"*", "*"}} {
		wild := in(t, alpha, place[0], place[1]).Resource(exports)
		if _, err := wild.Get(t.Context(), "things", metav1.GetOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("get in %v: %v", place, err)
		}
		if _, err := wild.Create(t.Context(), object("more", nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("create in %v: %v", place, err)
		}
		if err := wild.Delete(t.Context(), "things", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete in %v: %v", place, err)
		}
	}
}
