package migration

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// shard is a shard with objects of one kind.
type shard struct {
	name    string
	store   *storage.Backend
	copies  *storage.Copies
	objects *storage.Typed
	cluster *storage.Typed // LogicalClusters

	workspaces *storage.Typed
}

func newShard(t *testing.T, name string) *shard {
	t.Helper()
	client := servers[name].Client()
	root := "/" + t.Name()
	s := &shard{name: name, store: storage.NewBackend(client, root, 0)}
	t.Cleanup(func() { _ = client.Close() })
	t.Cleanup(s.store.Close)
	s.store.EnableFences()
	stop, err := s.store.FollowFences(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.copies = s.store.Copies(func(schema.GroupResource) (value.Transformer, error) { return nil, nil })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apisv1alpha1.AddToScheme, corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	base := storage.OptionsGetter(func(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
		return generic.RESTOptions{StorageConfig: storagebackend.NewDefaultConfig(root, nil).ForResource(resource)}, nil
	})
	s.objects, err = s.store.Typed(base, apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"), scheme,
		"APIExportEndpointSlice", "APIExportEndpointSliceList")
	if err == nil {
		s.cluster, err = s.store.Typed(base, corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), scheme, "LogicalCluster",
			"LogicalClusterList")
	}
	if err == nil {
		s.workspaces, err = s.store.Typed(base, tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"), scheme, "Workspace",
			"WorkspaceList")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func in(cluster logicalcluster.Name) context.Context {
	return logicalcluster.WithName(context.Background(), cluster)
}

// write sets the value of an object, and creates it if it does not exist.
func (s *shard) write(cluster logicalcluster.Name, name string, value int) error {
	set := func(obj runtime.Object) error {
		obj.(*apisv1alpha1.APIExportEndpointSlice).Labels = map[string]string{"value": strconv.Itoa(value)}
		return nil
	}
	err := s.objects.Update(in(cluster), name, &apisv1alpha1.APIExportEndpointSlice{}, set)
	if !apierrors.IsNotFound(err) {
		return err
	}
	obj := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"))
	_ = set(obj)
	return s.objects.Create(in(cluster), name, obj)
}

func valueOf(obj *apisv1alpha1.APIExportEndpointSlice) int {
	value, _ := strconv.Atoi(obj.Labels["value"])
	return value
}

func (s *shard) read(cluster logicalcluster.Name, name string) (int, error) {
	obj := &apisv1alpha1.APIExportEndpointSlice{}
	err := s.objects.Get(in(cluster), name, obj)
	return valueOf(obj), err
}

// keys returns the number of keys of a cluster, behind its fence.
func (s *shard) keys(t *testing.T, cluster logicalcluster.Name) int {
	t.Helper()
	collections, _, _, err := s.copies.Collections(in(cluster), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := s.copies.Digest(in(cluster), 0, collections)
	if err != nil {
		t.Fatal(err)
	}
	return int(digest.Keys)
}

// informer keeps the objects of all clusters as an informer does: it resumes watches, and lists again only when it must.
type informer struct {
	shard   *shard
	lists   atomic.Int64
	deleted atomic.Int64

	mu      sync.Mutex
	objects map[string]int
}

func (i *informer) run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			if version = i.list(ctx); version == "" {
				continue
			}
		}
		w, err := i.shard.objects.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if apierrors.IsResourceExpired(err) {
			version = ""
		}
		if err != nil {
			continue
		}
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				version = ""
				break
			}
			version = i.apply(event)
		}
		w.Stop()
	}
}

func (i *informer) list(ctx context.Context) (version string) {
	found, err := i.shard.objects.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	list := found.(*apisv1alpha1.APIExportEndpointSliceList)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lists.Add(1)
	i.objects = map[string]int{}
	for n := range list.Items {
		i.objects[i.key(&list.Items[n])] = valueOf(&list.Items[n])
	}
	return list.ResourceVersion
}

func (i *informer) key(obj *apisv1alpha1.APIExportEndpointSlice) string {
	return string(logicalcluster.Of(obj)) + "/" + obj.Name
}

func (i *informer) apply(event watch.Event) (version string) {
	obj := event.Object.(*apisv1alpha1.APIExportEndpointSlice)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch event.Type {
	case watch.Added, watch.Modified:
		i.objects[i.key(obj)] = valueOf(obj)
	case watch.Deleted:
		i.deleted.Add(1)
		delete(i.objects, i.key(obj))
	}
	return obj.ResourceVersion
}

func (i *informer) has(want map[string]int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Equal(i.objects, want)
}

// parent is a record of a placement, and the errors of reading and changing it.
type parent struct {
	mu     sync.Mutex
	record placement.Record
	fault  func() bool
}

var errFault = errors.New("the response was lost")

func (p *parent) Record(context.Context, logicalcluster.Name) (placement.Record, error) {
	if p.fault() {
		return placement.Record{}, errFault
	}
	return p.current(), nil
}

func (p *parent) current() placement.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

func (p *parent) Replace(_ context.Context, before, after placement.Record) error {
	if p.fault() {
		return errFault
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record != before {
		return apierrors.NewConflict(migrationResource, "record", errors.New("changed"))
	}
	p.record = after
	if p.fault() {
		return errFault
	}
	return nil
}

// direct calls an origin without a connection, and loses requests and responses.
type direct struct {
	origin *Origin
	caller peers.Identity
	fault  func() bool
}

func lossy[A any](d direct, call func() (A, error)) (A, error) {
	if d.fault() {
		var none A
		return none, errFault
	}
	out, err := call()
	if err == nil && d.fault() {
		err = errFault
	}
	return out, err
}

func (d direct) State(ctx context.Context, m Migration) (State, error) {
	return lossy(d, func() (State, error) { return d.origin.State(ctx, d.caller, m) })
}

func (d direct) Do(ctx context.Context, m Migration, step Step) (State, error) {
	return lossy(d, func() (State, error) { return d.origin.Do(ctx, d.caller, Order{m, step}) })
}

func (d direct) Collections(ctx context.Context, in Read) (Answer, error) {
	return lossy(d, func() (Answer, error) { return d.origin.Collections(ctx, d.caller, in) })
}

func (d direct) Page(ctx context.Context, in Read) (Answer, error) {
	return lossy(d, func() (Answer, error) { return d.origin.Page(ctx, d.caller, in) })
}

func (d direct) Changes(ctx context.Context, in Read) (Answer, error) {
	return lossy(d, func() (Answer, error) { return d.origin.Changes(ctx, d.caller, in) })
}

func (d direct) Digest(ctx context.Context, in Read) (Answer, error) {
	return lossy(d, func() (Answer, error) { return d.origin.Digest(ctx, d.caller, in) })
}
