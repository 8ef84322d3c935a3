package storage

import (
	"context"
	"crypto/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func sourceOf(t *testing.T, b *Backend, root, kind, resource string) *Source {
	t.Helper()
	version := corev1.SchemeGroupVersion
	if resource != "configmaps" {
		version = rbacv1.SchemeGroupVersion
	}
	source, err := b.Source(b.BuiltIn(below(root)), version.WithResource(resource), kind, legacyscheme.Scheme, legacyscheme.Codecs)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestASourceReadsTheObjectsOfAllClustersAsClientsDecodeThem(t *testing.T) {
	root := "/source" + rand.Text()
	s := configMapsBelow(t, backend, root, nil)
	first := create(t, s, "a", "default", "first", nil)
	create(t, s, "b", "default", "second", nil)
	source := sourceOf(t, backend, root, "ConfigMap", "configmaps")

	listed, err := source.ListWithContext(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	page := listed.(*corev1.ConfigMapList)
	if len(page.Items) != 1 || page.Continue == "" {
		t.Fatalf("got %d objects and the position %q, want one object of a page", len(page.Items), page.Continue)
	}
	got := page.Items[0]
	if got.Kind != "" || got.Name != "first" || got.ResourceVersion != first.ResourceVersion || logicalcluster.Of(&got) != "a" {
		t.Errorf("got %v", got)
	}

	w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expectSourced(t, w, watch.Added, "second")
	err = s.GuaranteedUpdate(in("b"), prefix+"/default/second", &core.ConfigMap{}, false, nil,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.ConfigMap).Data = map[string]string{"key": "value"}
			return obj, nil
		}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if changed := expectSourced(t, w, watch.Modified, "second"); changed.Data["key"] != "value" {
		t.Errorf("got %v", changed)
	}
	remove(t, root+prefix+"/b/default/second")
	expectSourced(t, w, watch.Deleted, "second")
}

func expectSourced(t *testing.T, w watch.Interface, kind watch.EventType, name string) *corev1.ConfigMap {
	t.Helper()
	event := <-w.ResultChan()
	obj, ok := event.Object.(*corev1.ConfigMap)
	if !ok || event.Type != kind || obj.Name != name || obj.Kind != "" {
		t.Fatalf("got %s %v, want %s %s", event.Type, event.Object, kind, name)
	}
	return obj
}

// A server of an earlier version may have stored it.
func TestASourceConvertsObjectsOfAnotherVersion(t *testing.T) {
	root := "/source" + rand.Text()
	stored := &rbacv1beta1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", Annotations: map[string]string{logicalcluster.AnnotationKey: "a"}},
		RoleRef:    rbacv1beta1.RoleRef{Kind: "Role", Name: "reader"},
	}
	store(t, root+"/rbac.authorization.k8s.io/rolebindings/a/default/old",
		runtime.EncodeOrDie(legacyscheme.Codecs.LegacyCodec(rbacv1beta1.SchemeGroupVersion), stored))
	listed, err := sourceOf(t, backend, root, "RoleBinding", "rolebindings").ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := listed.(*rbacv1.RoleBindingList).Items
	if len(got) != 1 || got[0].RoleRef.Name != "reader" || got[0].RoleRef.APIGroup != rbacv1.GroupName {
		t.Errorf("got %v, want the role binding with its defaults", got)
	}
}

// A tenant or a damaged disk must not stop an informer, and an object in the key of another cluster is not one of that cluster.
func TestASourceLeavesOutUnreadableObjects(t *testing.T) {
	root := "/source" + rand.Text()
	s := configMapsBelow(t, backend, root, nil)
	create(t, s, "a", "default", "good", nil)
	stored, err := client.Get(t.Context(), root+prefix+"/a/default/good")
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatal(stored, err)
	}
	store(t, root+prefix+"/a/default/damaged", "no object")
	store(t, root+prefix+"/b/default/good", string(stored.Kvs[0].Value)) // it is of cluster a
	source := sourceOf(t, backend, root, "ConfigMap", "configmaps")
	listed, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list := listed.(*corev1.ConfigMapList)
	if len(list.Items) != 1 || list.Items[0].Name != "good" || logicalcluster.Of(&list.Items[0]) != "a" {
		t.Errorf("got %v, want the readable object", list.Items)
	}
	for _, object := range []struct {
		cluster logicalcluster.Name
		name    string
		exists  bool
	}{{"a", "good", true}, {"a", "damaged", false}, {"b", "good", false}, {"a", "missing", false}} {
		ctx := logicalcluster.WithName(t.Context(), object.cluster)
		if found, err := source.Find(ctx, "default", object.name, &corev1.ConfigMap{}); found != object.exists || err != nil {
			t.Errorf("%s in %s: found %t: %v", object.name, object.cluster, found, err)
		}
	}
	ended, cancel := context.WithCancel(logicalcluster.WithName(t.Context(), "a"))
	cancel()
	if found, err := source.Find(ended, "default", "good", &corev1.ConfigMap{}); found || err == nil {
		t.Error("an object that could not be read does not exist")
	}
	w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	store(t, root+prefix+"/a/default/other", "no object")
	create(t, s, "a", "default", "next", nil)
	for event := range w.ResultChan() {
		if event.Type == watch.Added {
			if name := event.Object.(*corev1.ConfigMap).Name; name != "next" {
				t.Errorf("got %s", name)
			}
			break
		}
		if event.Type != watch.Deleted {
			t.Fatalf("got %s %v", event.Type, event.Object)
		}
	}
}

func TestAWatchDeliversWhatTheServerItselfHasCreated(t *testing.T) {
	root := "/source" + rand.Text()
	configMapsBelow(t, backend, root, nil)
	source := sourceOf(t, backend, root, "ConfigMap", "configmaps")
	listed, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: listed.(*corev1.ConfigMapList).ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	now := metav1.Now()
	complete, err := source.AsRead(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made", CreationTimestamp: now, Labels: map[string]string{},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kcp", Time: &now, FieldsV1: metav1.NewFieldsV1("{}")}}},
		Data: map[string]string{"key": "value"}, BinaryData: map[string][]byte{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Create(in("a"), complete.DeepCopyObject().(metav1.Object)); err != nil {
		t.Fatal(err)
	}
	delivered := expectSourced(t, w, watch.Added, "made")
	external := source.codec.(readCodec).Codec.(*externalCodec)
	if n := external.written.waiting(); n != 0 {
		t.Errorf("the watch has decoded the object again, and %d are left", n)
	}
	if listed, err = source.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := listed.(*corev1.ConfigMapList).Items
	if len(stored) != 1 || logicalcluster.Of(delivered) != "a" {
		t.Fatalf("got %v of %v", delivered, stored)
	}
	if !reflect.DeepEqual(delivered, &stored[0]) {
		t.Error("the watch delivers another object than the stored one: " + cmp.Diff(&stored[0], delivered))
	}
}
