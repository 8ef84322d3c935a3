package derived

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// stored has objects by name, and records the limit of the last list.
type stored struct {
	Stored
	objects []string
	limit   int64
	watch   *watch.FakeWatcher
}

func (s *stored) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	for _, known := range s.objects {
		if known == name {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "3"}}, nil
		}
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (s *stored) List(_ context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	s.limit = options.Limit
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range s.objects {
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "3"}})
	}
	return list, nil
}

func (s *stored) Watch(context.Context, *metainternalversion.ListOptions) (watch.Interface, error) {
	return s.watch, nil
}

func (s *stored) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	return obj, nil
}

func (s *stored) Delete(context.Context, string, rest.ValidateObjectFunc, *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return nil, true, nil
}

type source []string

func (s source) Get(_ context.Context, name string) (runtime.Object, error) {
	for _, known := range s {
		if known == name {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
	}
	return nil, nil
}

func (s source) List(ctx context.Context) (all []runtime.Object, err error) {
	for _, name := range s {
		obj, _ := s.Get(ctx, name)
		all = append(all, obj)
	}
	return all, nil
}

var resource = schema.GroupResource{Resource: "configmaps"}

func newStorage(derived source, objects ...string) (*Storage, *stored) {
	kept := &stored{objects: objects, watch: watch.NewFake()}
	return &Storage{Stored: kept, Source: derived, Resource: resource, Reason: "the test derives it", Append: func(list, obj runtime.Object) {
		l := list.(*corev1.ConfigMapList)
		l.Items = append(l.Items, *obj.(*corev1.ConfigMap))
	}}, kept
}

func TestStoredObjectsTakePrecedence(t *testing.T) {
	ctx := logicalcluster.WithName(t.Context(), "a")
	s, kept := newStorage(source{"derived", "both"}, "both", "stored")
	for name, version := range map[string]string{"derived": "7", "both": "3", "stored": "3"} {
		if obj, err := s.Get(ctx, name, nil); err != nil || obj.(*corev1.ConfigMap).ResourceVersion != version {
			t.Errorf("%s: got %v, %v", name, obj, err)
		}
	}
	if _, err := s.Get(ctx, "neither", nil); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	list, err := s.List(ctx, &metainternalversion.ListOptions{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, item := range list.(*corev1.ConfigMapList).Items {
		versions[item.Name] += item.ResourceVersion
	}
	if len(versions) != 3 || versions["derived"] != "7" || versions["both"] != "3" || kept.limit != 8 {
		t.Errorf("listed %v with limit %d", versions, kept.limit)
	}
	for name, refused := range map[string]bool{"derived": true, "both": false, "stored": false} {
		if _, _, err := s.Delete(ctx, name, nil, nil); apierrors.IsForbidden(err) != refused {
			t.Errorf("deleting %s: %v", name, err)
		}
	}
}

func TestARequestAcrossClustersSeesOnlyStoredObjects(t *testing.T) {
	s, _ := newStorage(source{"derived"}, "stored")
	ctx := logicalcluster.WithWildcard(t.Context())
	list, err := s.List(ctx, nil)
	if err != nil || len(list.(*corev1.ConfigMapList).Items) != 1 {
		t.Errorf("got %v, %v", list, err)
	}
	if w, err := s.Watch(ctx, &metainternalversion.ListOptions{}); err != nil || w != s.Stored.(*stored).watch {
		t.Errorf("got %v, %v", w, err)
	}
}

func TestAClaimSeesOnlyStoredObjects(t *testing.T) {
	s, _ := newStorage(source{"derived"}, "stored")
	ctx := StoredOnly(logicalcluster.WithName(t.Context(), "a"))
	if obj, err := s.Get(ctx, "derived", nil); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, %v", obj, err)
	}
	list, err := s.List(ctx, nil)
	if err != nil || len(list.(*corev1.ConfigMapList).Items) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
	if w, err := s.Watch(ctx, &metainternalversion.ListOptions{}); err != nil || w != s.Stored.(*stored).watch {
		t.Errorf("watched %v, %v", w, err)
	}
	for _, replaceable := range []bool{false, true} {
		s.Replaceable = replaceable
		if err := s.CheckWritable(ctx, "derived"); apierrors.IsForbidden(err) == replaceable {
			t.Errorf("writing, replaceable %t: %v", replaceable, err)
		}
	}
}

func TestWritesOfDerivedObjects(t *testing.T) {
	ctx := logicalcluster.WithName(t.Context(), "a")
	s, _ := newStorage(source{"derived"})
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "derived"}}
	if _, err := s.Create(ctx, obj, nil, nil); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
	s.Replaceable = true
	if _, err := s.Create(ctx, obj, nil, nil); err != nil {
		t.Errorf("replaceable: %v", err)
	}
}

func TestAWatchCanBeStoppedAtAnyEvent(t *testing.T) {
	ctx := logicalcluster.WithName(t.Context(), "a")
	for _, received := range []int{0, 1, 2, 3} {
		s, kept := newStorage(source{"one", "two"})
		w, err := s.Watch(ctx, &metainternalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range received {
			if i == 2 {
				go kept.watch.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "three", ResourceVersion: "7"}})
			}
			m := (<-w.ResultChan()).Object.(*corev1.ConfigMap)
			if got = append(got, m.Name); m.ResourceVersion != "7" {
				t.Errorf("got %v", m)
			}
		}
		w.Stop()
		w.Stop()
		for range w.ResultChan() { // ends with the goroutine, after at most one pending event
		}
		if !kept.watch.IsStopped() {
			t.Errorf("after %v: the watch of stored objects continues", got)
		}
	}
	s, kept := newStorage(source{"one"})
	w, err := s.Watch(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept.watch.Stop()
	n := 0
	for range w.ResultChan() {
		n++
	}
	if n != 1 {
		t.Errorf("got %d events before the end of what is stored", n)
	}
}

func TestDerivedObjectsAreThoseOfTheirCluster(t *testing.T) {
	uids := map[types.UID]bool{}
	for _, c := range []struct {
		cluster logicalcluster.Name
		of      types.UID
	}{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"a", "1"}} {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"kept": "y"}}}
		Identify(obj, c.cluster, resource, c.of, metav1.Now())
		if obj.Annotations["kept"] != "y" || logicalcluster.Of(obj) != c.cluster {
			t.Errorf("got %v", obj)
		}
		uids[obj.UID] = true
	}
	if len(uids) != 3 {
		t.Errorf("got %v", uids)
	}
}
