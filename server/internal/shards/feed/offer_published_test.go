package feed

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

var sizes = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sizes"}

const sizesPath = "p/apis/example.com/v1/sizes:"

func size(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Size",
		"metadata": map[string]any{
			"name": name, "uid": "uid-of-" + name, "resourceVersion": "5", "labels": map[string]any{"color": color},
			"annotations": map[string]any{"kcp.io/cluster": "p"},
		},
		"spec": map[string]any{"slots": int64(3)},
	}}
}

// publishing returns a world in which a ClusterCachedResource publishes the red sizes of p.
func publishing(t *testing.T, objects ...runtime.Object) (*world, *cachev1alpha1.ClusterCachedResource) {
	w := newWorld(t)
	w.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{sizes: "SizeList"}, objects...)
	w.offer = w.leader()
	cached := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "sizes"}}
	cached.Spec.Group, cached.Spec.Version, cached.Spec.Resource = sizes.Group, sizes.Version, sizes.Resource
	cached.Spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"color": "red"}}
	cached.Status.IdentityHash = "abc"
	cached.Status.Conditions = []corev1alpha1.Condition{{Type: cachev1alpha1.ReplicationStarted, Status: metav1.ConditionTrue}}
	w.has("p", logicalCluster("", ""), cached)
	w.connect()
	return w, cached
}

var sizesKey = informers.Key{Cluster: "p", Name: "sizes"}

// publish reconciles the ClusterCachedResource, and returns the paths of published objects.
func (w *world) publish() []string {
	w.t.Helper()
	if err := w.offer.published.controller.Reconcile(w.t.Context(), sizesKey); err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(w.cache.paths("here"), func(path string) bool { return !strings.Contains(path, "sizes:") })
}

func TestSelectedObjectsArePublishedUnderTheirIdentity(t *testing.T) {
	w, _ := publishing(t, size("s", "red"), size("m", "red"), size("l", "blue"))
	var counted []int
	w.offer.published.OnCounted(func(key informers.Key) { counted = append(counted, w.offer.published.Count(key)) })
	equal(t, "published", w.publish(), sizesPath+"abc/m", sizesPath+"abc/s")
	u := w.cache.get(sizesPath + "abc/s")
	slots, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "slots")
	if u.GetKind() != "Size" || u.GetAPIVersion() != "example.com/v1" || slots == nil || u.GetLabels()["color"] != "red" {
		t.Errorf("got %v", u.Object)
	}
	if a := u.GetAnnotations(); a["cache.kcp.io/original-resource-UID"] != "uid-of-s" || a["cache.kcp.io/original-resource-version"] != "5" {
		t.Errorf("got annotations %v", a)
	}
	w.cache.takeWrites()
	w.publish()
	equal(t, "writes without a change", w.cache.takeWrites())

	if err := w.dynamic.Resource(sizes).Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := size("m", "red")
	changed.SetResourceVersion("6")
	_ = unstructured.SetNestedField(changed.Object, int64(4), "spec", "slots")
	if _, err := w.dynamic.Resource(sizes).Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.publish()
	equal(t, "writes after a deletion and a change", w.cache.takeWrites(), "PUT "+sizesPath+"abc/m", "DELETE "+sizesPath+"abc/s")
	if !slices.Equal(counted, []int{2, 1}) {
		t.Errorf("the counts were %v", counted)
	}
}

func TestPublishedObjectsGoWithTheClusterCachedResource(t *testing.T) {
	for name, change := range map[string]func(w *world, cached *cachev1alpha1.ClusterCachedResource){
		"it is deleted": func(w *world, cached *cachev1alpha1.ClusterCachedResource) { w.Hide(objecttest.In("p", cached)) },
		"it is being deleted": func(w *world, cached *cachev1alpha1.ClusterCachedResource) {
			now := metav1.Now()
			cached.DeletionTimestamp, cached.Finalizers = &now, []string{"wait"}
			w.Show(cached)
		},
		"it is not valid": func(w *world, cached *cachev1alpha1.ClusterCachedResource) {
			cached.Status.Conditions[0].Status = metav1.ConditionFalse
			w.Show(cached)
		},
		"its logical cluster is gone": func(w *world, _ *cachev1alpha1.ClusterCachedResource) {
			w.Hide(objecttest.In("p", logicalCluster("", "")))
		},
	} {
		w, cached := publishing(t, size("s", "red"))
		equal(t, "published", w.publish(), sizesPath+"abc/s")
		change(w, cached)
		equal(t, "after "+name, w.publish())
		if w.offer.published.Count(sizesKey) != 0 || len(w.offer.published.states) != 0 {
			t.Errorf("%s: it is remembered", name)
		}
	}
}

func TestAnotherIdentityReplacesWhatIsPublished(t *testing.T) {
	w, cached := publishing(t, size("s", "red"))
	w.publish()
	cached.Status.IdentityHash = "def"
	w.Show(cached)
	equal(t, "published", w.publish(), sizesPath+"def/s")
}

func TestWhatWasPublishedByAFormerLeaderIsRemoved(t *testing.T) {
	w, cached := publishing(t, size("s", "red"))
	w.publish()
	w.settle()
	w.Hide(objecttest.In("p", cached))
	w.offer, w.term = w.leader(), 8
	w.connect()
	equal(t, "published", w.publish())
}

func TestTamperingWithPublishedObjectsIsReverted(t *testing.T) {
	w, _ := publishing(t, size("s", "red"))
	w.publish()
	w.cache.change(sizesPath+"abc/s", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"color": "blue"}) })
	forged := size("forged", "red")
	w.cache.offer("/shards/here/clusters/"+sizesPath+"abc/forged", forged.Object)
	w.connect()
	equal(t, "published", w.publish(), sizesPath+"abc/s")
	if color := w.cache.get(sizesPath + "abc/s").GetLabels()["color"]; color != "red" {
		t.Errorf("the color is %s", color)
	}
}

func TestPublishedObjectsAreLimited(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"a", "b", "c", "d"} {
		objects = append(objects, size(name, "red"))
	}
	w, _ := publishing(t, objects...)
	w.offer.in.Limits = Limits{3, 1 << 20}
	if n := len(w.publish()); n != 3 {
		t.Errorf("got %d published objects, want 3", n)
	}
	if offered, excess := w.offer.published.total(); offered != 3 || excess != 1 {
		t.Errorf("got %d offered and %d in excess", offered, excess)
	}
}
