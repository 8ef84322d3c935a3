package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/apis/core"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// fencedStore is a store with all kinds of writers.
type fencedStore struct {
	*Backend
	base         OptionsGetter
	maps, others storage.Interface
	slices       *Typed
	remains      *Remains
}

func newFencedStore(t *testing.T) *fencedStore {
	t.Helper()
	return newFencedStoreBelow(t, "/"+strings.ReplaceAll(t.Name(), "/", "_"), nil)
}

// widgetIdentity is the identity of the bound resource of a store.
var widgetIdentity = strings.Repeat("0a", 32)

// newFencedStoreBelow returns the store with keys below root, and with values that a transformer encrypts.
func newFencedStoreBelow(t *testing.T, root string, transformer value.Transformer) *fencedStore {
	t.Helper()
	b := NewBackend(client, root, 0)
	t.Cleanup(b.Close)
	b.EnableFences()
	followFences(t, b)
	base := OptionsGetter(func(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
		options, err := below(root)(resource, example)
		options.StorageConfig.Transformer = transformer
		return options, err
	})
	s := &fencedStore{Backend: b, base: base, maps: configMapsBelow(t, b, root, transformer), remains: b.Remains(base)}
	others := *s.maps.(*clusterStorage)
	others.resource = schema.GroupResource{Resource: "others"}
	s.others = &others
	scheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	s.slices, err = b.Typed(base, apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"), scheme,
		"APIExportEndpointSlice", "APIExportEndpointSliceList")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// followFences makes the process of a backend know fences.
func followFences(t *testing.T, b *Backend) (stop func()) {
	t.Helper()
	stop, err := b.FollowFences(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

// known waits until all processes know the fences of a revision.
func (s *fencedStore) known(t *testing.T, revision int64) {
	t.Helper()
	for {
		known, err := s.FencesKnown(t.Context(), revision)
		if err != nil {
			t.Fatal(err)
		}
		if known {
			return
		}
	}
}

// swap replaces a fence, and waits until all processes know it.
func (s *fencedStore) swap(t *testing.T, cluster logicalcluster.Name, from, to *Fence) int64 {
	t.Helper()
	revision, err := s.SwapFence(t.Context(), cluster, from, to)
	if err != nil {
		t.Fatal(err)
	}
	s.known(t, revision)
	return revision
}

// with returns a fence in another state.
func with(f *Fence, state FenceState) *Fence {
	other := *f
	other.State = state
	return &other
}

func (s *fencedStore) leave(t *testing.T, cluster logicalcluster.Name) int64 {
	t.Helper()
	revision, err := s.SwapFence(t.Context(), cluster, nil, leaving())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func leaving() *Fence {
	return &Fence{State: FenceLeaving, Epoch: 2, Shard: "east", Migration: "uid"}
}

func configMap(name, value string) *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"key": value}}
}

// writer writes an object of a name.
type writer func(ctx context.Context, name, value string) error

// writers are all ways to write an object of a name, or to delete it.
func (s *fencedStore) writers() map[string]writer {
	key := func(name string) string { return prefix + "/n/" + name }
	slice := func() *apisv1alpha1.APIExportEndpointSlice { return &apisv1alpha1.APIExportEndpointSlice{} }
	widgets := func(ctx context.Context) (*clusterStorage, string, error) {
		w, prefix, _, err := s.remains.open(widgetResource, widgetIdentity)
		return w, prefix, err
	}
	return map[string]writer{
		"create": func(ctx context.Context, name, value string) error {
			return s.maps.Create(ctx, key(name), configMap(name, value), nil, 0)
		},
		"create with a lease": func(ctx context.Context, name, value string) error {
			return s.maps.Create(ctx, key(name), configMap(name, value), nil, 3600)
		},
		"update": func(ctx context.Context, name, value string) error {
			return s.maps.GuaranteedUpdate(ctx, key(name), &core.ConfigMap{}, true, nil,
				storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return configMap(name, value), nil }), nil)
		},
		"delete": func(ctx context.Context, name, _ string) error {
			return s.maps.Delete(ctx, key(name), &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		},
		"create by the server": func(ctx context.Context, name, _ string) error {
			obj := slice()
			obj.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"))
			obj.Name = name
			return s.slices.Create(ctx, name, obj)
		},
		"update by the server": func(ctx context.Context, name, value string) error {
			return s.slices.Update(ctx, name, slice(), func(obj runtime.Object) error {
				obj.(*apisv1alpha1.APIExportEndpointSlice).Labels = map[string]string{"value": value}
				return nil
			})
		},
		"delete by the server": func(ctx context.Context, name, _ string) error {
			return s.slices.Delete(ctx, name, slice(), func(runtime.Object) error { return nil })
		},
		"create bound": func(ctx context.Context, name, _ string) error {
			w, prefix, err := widgets(ctx)
			if err != nil {
				return err
			}
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget"}}
			u.SetName(name)
			return w.Create(ctx, prefix+"/"+name, u, nil, 0)
		},
		"relabel remains": func(ctx context.Context, _, value string) error {
			return s.remains.Relabel(ctx, widgetResource, widgetIdentity, func(map[string]string) map[string]string {
				return map[string]string{"value": value}
			})
		},
		"delete remains": func(ctx context.Context, _, _ string) error {
			_, err := s.remains.Delete(ctx, widgetResource, widgetIdentity, func(*unstructured.Unstructured) bool { return false })
			return err
		},
		"transaction": func(ctx context.Context, name, value string) error {
			both := &Transaction{}
			defer both.End()
			if err := s.maps.Create(both.Hold(ctx), key("t-"+name), configMap("t-"+name, value), nil, 0); err != nil {
				return err
			}
			return s.others.Create(both.Commit(in("never-fenced")), key("u-"+value), configMap("u-"+value, value), nil, 0)
		},
		"last of a transaction": func(ctx context.Context, name, value string) error {
			both := &Transaction{}
			defer both.End()
			if err := s.maps.Create(both.Hold(in("never-fenced")), key("u-"+value), configMap("u-"+value, value), nil, 0); err != nil {
				return err
			}
			return s.others.Create(both.Commit(ctx), key("t-"+name), configMap("t-"+name, value), nil, 0)
		},
	}
}

func TestNoWriterPassesAFence(t *testing.T) {
	// What each writer changes exists, or not.
	before := map[string]string{"delete": "create", "update by the server": "create by the server", "delete by the server": "create by the server",
		"relabel remains": "create bound", "delete remains": "create bound"}
	for name := range newFencedStore(t).writers() {
		t.Run(name, func(t *testing.T) {
			s := newFencedStore(t)
			writers := s.writers()
			for _, cluster := range []string{"left", "other"} {
				if first, ok := before[name]; ok {
					if err := writers[first](in(cluster), "x", "0"); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.leave(t, "left")
			before := s.cluster(t, "left")
			err := refusal(writers[name](in("left"), "x", "1"))
			status := apierrors.APIStatus(nil)
			if !errors.As(err, &status) || status.Status().Code != 503 || status.Status().Details.RetryAfterSeconds != 1 ||
				!strings.Contains(err.Error(), `"left" is being moved to another shard`) {
				t.Errorf("in a fenced cluster: %v", err)
			}
			if after := s.cluster(t, "left"); !slices.Equal(before, after) {
				t.Errorf("behind a fence the keys changed from %v to %v", before, after)
			}
			if err := writers[name](in("other"), "x", "2"); err != nil {
				t.Errorf("in another cluster: %v", err)
			}
			s.swap(t, "left", leaving(), nil)
			if err := writers[name](in("left"), "x", "3"); err != nil {
				t.Errorf("without the fence: %v", err)
			}
		})
	}
}

// cluster returns the keys of a cluster with their revisions.
func (s *fencedStore) cluster(t *testing.T, cluster string) []string {
	t.Helper()
	found, err := client.Get(t.Context(), s.root+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range found.Kvs {
		if strings.Contains(string(kv.Key), "/"+cluster+"/") {
			keys = append(keys, fmt.Sprint(string(kv.Key), " ", kv.ModRevision))
		}
	}
	return keys
}

// Random writers write to clusters that are fenced, and released, at random moments.
func TestNoRevisionOfAClusterIsLaterThanItsFence(t *testing.T) {
	s := newFencedStore(t)
	writers := s.writers()
	var names []string
	for name := range writers {
		names = append(names, name)
	}
	slices.Sort(names)
	clusters := []logicalcluster.Name{"one", "two", "three"}
	const perWriter, workers, fencings = 150, 4, 12
	began, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	written := make(chan struct{}, workers*perWriter)
	for worker := range workers {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		wait.Go(func() {
			for n := range perWriter {
				name, cluster := names[random.IntN(len(names))], clusters[random.IntN(len(clusters))]
				_ = writers[name](in(string(cluster)), fmt.Sprint("x", random.IntN(3)), fmt.Sprintf("%d-%d", worker, n))
				written <- struct{}{}
			}
		})
	}
	type interval struct{ from, to int64 }
	closed := map[logicalcluster.Name][]interval{}
	random := rand.New(rand.NewPCG(2, 2))
	for range fencings {
		for range workers * perWriter / fencings / 2 {
			<-written
		}
		cluster := clusters[random.IntN(len(clusters))]
		from := s.leave(t, cluster)
		for range workers * perWriter / fencings / 2 {
			<-written
		}
		to, err := s.SwapFence(t.Context(), cluster, leaving(), nil)
		if err != nil {
			t.Fatal(err)
		}
		closed[cluster] = append(closed[cluster], interval{from, to})
	}
	wait.Wait()

	now, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last, err := client.Put(ctx, s.root+"/end", "")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for response := range client.Watch(ctx, s.root+"/", clientv3.WithPrefix(), clientv3.WithRev(int64(began)+1)) {
		for _, event := range response.Events {
			for cluster, intervals := range closed {
				if !strings.Contains(string(event.Kv.Key), "/"+string(cluster)+"/") {
					continue
				}
				seen++
				for _, i := range intervals {
					if r := event.Kv.ModRevision; i.from < r && r < i.to {
						t.Errorf("key %s changed at revision %d behind the fence of %d to %d", event.Kv.Key, r, i.from, i.to)
					}
				}
			}
		}
		if response.Header.Revision >= last.Header.Revision {
			break
		}
	}
	if seen < 50 {
		t.Errorf("until revision %d only %d changes of fenced clusters were written", now, seen)
	}
}

func TestAFenceChangesOnlyByItsCompleteValue(t *testing.T) {
	s := newFencedStore(t)
	first := s.leave(t, "a")
	if again := s.leave(t, "a"); again != first {
		t.Errorf("the same fence has revision %d, then %d", first, again)
	}
	for name, other := range map[string]Fence{
		"another migration": {FenceLeaving, 2, "east", "other"}, "another epoch": {FenceLeaving, 3, "east", "uid"},
		"another shard": {FenceLeaving, 2, "west", "uid"}, "another state": {FenceArriving, 2, "east", "uid"},
	} {
		if _, err := s.SwapFence(t.Context(), "a", nil, &other); !IsFenceChanged(err) {
			t.Errorf("%s sets a second fence: %v", name, err)
		}
		if _, err := s.SwapFence(t.Context(), "a", &other, nil); !IsFenceChanged(err) {
			t.Errorf("%s removes the fence: %v", name, err)
		}
	}
	for _, incomplete := range []Fence{{}, {State: FenceMoved, Epoch: 2, Shard: "east"}, {State: FenceMoved, Shard: "east", Migration: "uid"}} {
		if _, err := s.SwapFence(t.Context(), "a", leaving(), &incomplete); err == nil {
			t.Errorf("%+v is stored", incomplete)
		}
	}
	moved := leaving()
	moved.State = FenceMoved
	later, err := s.SwapFence(t.Context(), "a", leaving(), moved)
	if err != nil || later <= first {
		t.Errorf("the replaced fence has revision %d, was %d, %v", later, first, err)
	}
	if stored, revision, err := s.Fence(t.Context(), "a"); err != nil || stored == nil || *stored != *moved || revision != later {
		t.Errorf("stored is %+v at %d, %v", stored, revision, err)
	}
	for range 2 {
		if _, err := s.SwapFence(t.Context(), "a", moved, nil); err != nil {
			t.Error(err)
		}
	}
	if stored, _, err := s.Fence(t.Context(), "a"); err != nil || stored != nil {
		t.Errorf("stored is %+v, %v", stored, err)
	}
}

func TestAWriteOutsideOfItsClusterIsRefusedWithFences(t *testing.T) {
	s := newFencedStore(t)
	for name, ctx := range map[string]context.Context{"no cluster": t.Context(), "all clusters": in("*"), "another cluster": in("b")} {
		_, err := s.client.Kubernetes.OptimisticPut(ctx, s.root+"/core/configmaps/a/x", []byte("{}"), 0, etcdkubernetes.PutOptions{})
		if !apierrors.IsInternalError(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAWriteThatMayPrecedeAFenceIsNotReportedAsRefused(t *testing.T) {
	s := newFencedStore(t)
	reach := s.client.Kubernetes.(transactions)
	lost := &lossy{Interface: reach.Interface, done: true, since: func() { s.leave(t, "a") }, err: rpctypes.ErrLeaderChanged}
	_, err := retryPut(in("a"), lost, s.root+"/core/configmaps/a/x", []byte("{}"), 0, etcdkubernetes.PutOptions{})
	if !apierrors.IsTimeout(err) || IsFenced(err) {
		t.Errorf("got %v", err)
	}
}

// comparing is an etcd that counts comparisons.
type comparing struct {
	clientv3.KV
	compared *int
}

func (c comparing) Txn(ctx context.Context) clientv3.Txn { return comparingTxn{c.KV.Txn(ctx), c} }

type comparingTxn struct {
	clientv3.Txn
	comparing
}

func (c comparingTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	*c.compared += len(cs)
	return c.Txn.If(cs...)
}

func TestAStoreWithoutFencesComparesNothingMore(t *testing.T) {
	for name, c := range map[string]struct {
		fences   bool
		one, of2 int
	}{"without": {false, 1, 2}, "with": {true, 2, 4}} {
		t.Run(name, func(t *testing.T) {
			compared := 0
			counting := clientv3.NewCtxClient(t.Context())
			counting.KV, counting.Lease, counting.Watcher = comparing{client.KV, &compared}, client.Lease, client.Watcher
			b := NewBackend(counting, "/"+t.Name(), 0)
			defer b.Close()
			if c.fences {
				b.EnableFences()
				followFences(t, b)
			}
			s := &fencedStore{Backend: b, maps: configMapsOf(t, b)}
			others := *s.maps.(*clusterStorage)
			others.resource = schema.GroupResource{Resource: "others"}
			s.others = &others
			writers := s.writers()
			for _, step := range []struct {
				writer string
				want   int
			}{{"create", c.one}, {"update", c.one}, {"delete", c.one}, {"transaction", c.of2}} {
				compared = 0
				if err := writers[step.writer](in("a"), "x", step.writer); err != nil {
					t.Fatal(err)
				}
				if compared != step.want {
					t.Errorf("%s compares %d, want %d", step.writer, compared, step.want)
				}
			}
		})
	}
}
