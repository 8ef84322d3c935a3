package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// requestsOf counts the requests to an etcd.
type requestsOf struct {
	clientv3.KV
	requests *int
}

func (c requestsOf) Txn(ctx context.Context) clientv3.Txn {
	*c.requests++
	return c.KV.Txn(ctx)
}

func (c requestsOf) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	*c.requests++
	return c.KV.Get(ctx, key, opts...)
}

// contentStore is a store with a holder, an APIExportEndpointSlice named cluster, in the clusters a and b, and ConfigMaps.
type contentStore struct {
	*fencedStore
	*Contents
	requests int
}

func newContentStore(t *testing.T, fences bool) *contentStore {
	t.Helper()
	s := &contentStore{}
	counting := clientv3.NewCtxClient(t.Context())
	counting.KV, counting.Lease, counting.Watcher = requestsOf{client.KV, &s.requests}, client.Lease, client.Watcher
	root := "/" + strings.ReplaceAll(t.Name(), "/", "_")
	b := NewBackend(counting, root, 0)
	t.Cleanup(b.Close)
	if fences {
		b.EnableFences()
		followFences(t, b)
	}
	s.fencedStore = &fencedStore{Backend: b, maps: configMapsBelow(t, b, root, nil)}
	scheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	s.slices, err = b.Typed(below(root), apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"), scheme,
		"APIExportEndpointSlice", "APIExportEndpointSliceList")
	if err != nil {
		t.Fatal(err)
	}
	s.Contents = b.Contents(apisv1alpha1.Resource("apiexportendpointslices"))
	for _, cluster := range []string{"a", "b"} {
		s.hold(t, cluster)
	}
	return s
}

// hold creates the holder of a cluster.
func (s *contentStore) hold(t *testing.T, cluster string) {
	t.Helper()
	holder := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	holder.SetGroupVersionKind(sliceKind)
	if err := s.slices.Create(in(cluster), "cluster", holder); err != nil {
		t.Fatal(err)
	}
}

func (s *contentStore) read(t *testing.T, limit int) (*StoredObject, []StoredObject) {
	t.Helper()
	holder, objects, _, err := s.Read(in("a"), []schema.GroupResource{{Resource: "unknown"}, configMapResource}, limit)
	if err != nil {
		t.Fatal(err)
	}
	return holder, objects
}

func TestTheContentOfAClusterIsReadAndDeletedInOneRequestEach(t *testing.T) {
	for name, fences := range map[string]bool{"without fences": false, "with fences": true} {
		t.Run(name, func(t *testing.T) {
			s := newContentStore(t, fences)
			create(t, s.maps, "a", "default", "x", nil)
			create(t, s.maps, "b", "default", "x", nil)
			deleted := &deletions{}
			s.limit = deleted
			acknowledged := s.Acknowledged(configMapResource)
			s.requests = 0
			holder, objects := s.read(t, 10)
			if holder == nil || holder.Object.GetName() != "cluster" || len(objects) != 1 || objects[0].Object.GetName() != "x" {
				t.Fatalf("read %+v and %+v", holder, objects)
			}
			if err := s.Delete(in("a"), holder, append(objects, *holder)); err != nil {
				t.Fatal(err)
			}
			if s.requests != 2 {
				t.Errorf("%d requests to etcd, want 2", s.requests)
			}
			if got := list(t, s.maps, "a", ""); len(got) != 0 {
				t.Errorf("left are %v", got)
			}
			if got := list(t, s.maps, "b", ""); len(got) != 1 {
				t.Errorf("another cluster has %v", got)
			}
			if holder, _ := s.read(t, 10); holder != nil {
				t.Errorf("left is %+v", holder)
			}
			if acknowledged.Last("a") == 0 || acknowledged.Last("b") != 0 {
				t.Errorf("acknowledged %d and %d", acknowledged.Last("a"), acknowledged.Last("b"))
			}
			if want := []string{"a configmaps", "a apiexportendpointslices.apis.kcp.io"}; !slices.Equal(deleted.all, want) {
				t.Errorf("the limit knows of %v, want %v", deleted.all, want)
			}
		})
	}
}

// deletions is a Limit that records deletions.
type deletions struct {
	unlimited
	all []string
}

func (d *deletions) Deleted(cluster logicalcluster.Name, resource schema.GroupResource) {
	d.all = append(d.all, fmt.Sprintf("%s %s", cluster, resource))
}

func TestWatchesGetTheDeletionsOfATransaction(t *testing.T) {
	s := newContentStore(t, false)
	created := create(t, s.maps, "a", "default", "x", nil)
	since := storage.ListOptions{ResourceVersion: created.ResourceVersion, Predicate: everything(), Recursive: true}
	w, err := s.maps.Watch(in("a"), prefix, since)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	holder, objects := s.read(t, 10)
	if err := s.Delete(in("a"), holder, objects); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.ResultChan():
		if m, ok := e.Object.(*core.ConfigMap); e.Type != watch.Deleted || !ok || m.Name != "x" || m.ResourceVersion == created.ResourceVersion {
			t.Errorf("got %+v", e)
		}
	case <-time.After(time.Minute):
		t.Error("no event")
	}
}

func TestChangedContentIsNotDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *contentStore)
		fenced bool
	}{
		"an object got a finalizer": {func(t *testing.T, s *contentStore) {
			t.Helper()
			err := s.maps.GuaranteedUpdate(in("a"), prefix+"/default/x", &core.ConfigMap{}, false, nil, storage.SimpleUpdate(
				func(obj runtime.Object) (runtime.Object, error) {
					obj.(*core.ConfigMap).Finalizers = []string{"example.org/mine"}
					return obj, nil
				}), nil)
			if err != nil {
				t.Fatal(err)
			}
		}, false},
		"the cluster was created again": {func(t *testing.T, s *contentStore) {
			t.Helper()
			allowed := func(runtime.Object) error { return nil }
			if err := s.slices.Delete(in("a"), "cluster", &apisv1alpha1.APIExportEndpointSlice{}, allowed); err != nil {
				t.Fatal(err)
			}
			s.hold(t, "a")
		}, false},
		"the cluster moves to another shard": {func(t *testing.T, s *contentStore) { t.Helper(); s.leave(t, "a") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newContentStore(t, c.fenced)
			create(t, s.maps, "a", "default", "x", nil)
			create(t, s.maps, "a", "default", "y", nil)
			holder, objects := s.read(t, 10)
			c.change(t, s)
			if err := s.Delete(in("a"), holder, objects); c.fenced && !IsFenced(err) || !c.fenced && !apierrors.IsConflict(err) {
				t.Errorf("got %v", err)
			}
			found, err := client.Get(t.Context(), s.root+prefix+"/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || found.Count != 2 {
				t.Errorf("%d are left, %v", found.Count, err)
			}
		})
	}
}

func TestContentIsReadInPages(t *testing.T) {
	s := newContentStore(t, false)
	for i := range 5 {
		create(t, s.maps, "a", "default", fmt.Sprintf("x%d", i), nil)
	}
	for n, want := range map[int]bool{4: true, 5: false} {
		_, objects, more, err := s.Read(in("a"), []schema.GroupResource{configMapResource}, n)
		if err != nil || slices.Contains(more, configMapResource) != want || len(objects) != n {
			t.Errorf("at most %d: got %d and more of %v, want %t: %v", n, len(objects), more, want, err)
		}
	}
	if _, _, _, err := s.Read(in("*"), nil, 1); err == nil {
		t.Error("it read all clusters")
	}
}

func TestAnUnreadableObjectHasNoMetadata(t *testing.T) {
	s := newContentStore(t, false)
	if _, err := client.Put(t.Context(), s.root+prefix+"/a/default/x", "{"); err != nil {
		t.Fatal(err)
	}
	if _, objects := s.read(t, 10); len(objects) != 1 || objects[0].Object != nil {
		t.Errorf("got %+v", objects)
	}
}

func TestContentIsNotDeletedWithoutSpace(t *testing.T) {
	s := newContentStore(t, false)
	create(t, s.maps, "a", "default", "x", nil)
	holder, objects := s.read(t, 10)
	s.SetRoom(noRoom{errors.New("full")}, func(context.Context) bool { return true })
	if err := s.Delete(in("a"), holder, objects); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
}

// noRoom is a Room in which nothing can be written.
type noRoom struct{ err error }

func (n noRoom) Grow() error  { return n.err }
func (n noRoom) Write() error { return n.err }
