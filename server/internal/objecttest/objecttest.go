// Package objecttest keeps objects of logical clusters in memory, for tests of the decisions of controllers and admission. It has informers
// that are filled without a server, and the storage that they follow. As in the server, informers drop the fields that informers.Kinds
// declares as trimmed, so a test fails if its subject depends on such a field of an informer.
package objecttest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Object is an object of any type.
type Object interface {
	runtime.Object
	metav1.Object
}

// In annotates obj as an object of a cluster, and returns it.
func In[T Object](cluster string, obj T) T {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = cluster
	obj.SetAnnotations(annotations)
	return obj
}

// Objects are stored objects, and Set has informers that show them. A write to a Stored changes both.
type Objects struct {
	Set *informers.Set

	t         testing.TB
	factory   *informers.Factory
	elsewhere *informers.Elsewhere // nil without other shards
	byType    map[reflect.Type]*informers.Informer
	stored    map[schema.GroupVersionResource]*Stored
}

// New returns objects that are stored, and that informers show. Each must be In a cluster.
func New(t testing.TB, objects ...Object) *Objects {
	t.Helper()
	factory := informers.NewFactory()
	factory.Index()
	set, err := informers.NewSet(factory)
	if err != nil {
		t.Fatal(err)
	}
	o := &Objects{
		Set: set, t: t, factory: factory, byType: map[reflect.Type]*informers.Informer{}, stored: map[schema.GroupVersionResource]*Stored{},
	}
	kept := map[schema.GroupVersionResource]func(runtime.Object) runtime.Object{}
	for _, kind := range informers.Kinds() {
		if kept[kind.Resource], err = kind.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	fields := reflect.ValueOf(set).Elem()
	for i := range fields.NumField() {
		get, _ := fields.Field(i).Type().MethodByName("Get")
		informer := fields.Field(i).FieldByName("Informer").Interface().(*informers.Informer)
		o.byType[get.Type.Out(0)] = informer
		o.stored[informer.Resource()] = &Stored{
			resource: informer.Resource().GroupResource(), informer: informer, keep: kept[informer.Resource()], objects: map[string]Object{},
			unreadable: map[string]error{},
		}
	}
	for _, obj := range objects {
		o.Store(obj)
		o.Show(obj)
	}
	return o
}

// Share makes informers show objects of other shards, where placement says that they hold the clusters. It must be called once, before
// Offer.
func (o *Objects) Share(placement informers.Placement) *informers.Elsewhere {
	o.t.Helper()
	var err error
	if o.elsewhere, err = o.factory.Share(placement); err != nil {
		o.t.Fatal(err)
	}
	return o.elsewhere
}

// Offer makes informers show an object that a shard offers.
func (o *Objects) Offer(shard string, obj Object) {
	o.t.Helper()
	if err := o.elsewhere.Set(o.informerOf(obj), shard, obj.DeepCopyObject()); err != nil {
		o.t.Fatal(err)
	}
}

// Withdraw removes an object that a shard offered.
func (o *Objects) Withdraw(shard string, obj Object) {
	o.t.Helper()
	key, err := informers.KeyOf(obj)
	if err == nil {
		err = o.elsewhere.Delete(o.informerOf(obj), shard, key)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// Stored returns the storage of a resource.
func (o *Objects) Stored(informer *informers.Informer) *Stored { return o.stored[informer.Resource()] }

// Store stores an object, which informers do not show yet.
func (o *Objects) Store(obj Object) {
	o.t.Helper()
	s := o.Stored(o.informerOf(obj))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(o.key(obj), obj.DeepCopyObject().(Object))
}

// Show makes informers show an object, whether it is stored or not.
func (o *Objects) Show(obj Object) {
	o.t.Helper()
	informer := o.informerOf(obj)
	if err := informer.Indexer().Add(o.Stored(informer).keep(obj.DeepCopyObject())); err != nil {
		o.t.Fatal(err)
	}
}

// Hide removes an object from informers, as if it was deleted.
func (o *Objects) Hide(obj Object) {
	o.t.Helper()
	if err := o.informerOf(obj).Indexer().Delete(obj); err != nil {
		o.t.Fatal(err)
	}
}

func (o *Objects) informerOf(obj Object) *informers.Informer {
	o.t.Helper()
	informer := o.byType[reflect.TypeOf(obj)]
	if informer == nil {
		o.t.Fatalf("informers.Set has no %T", obj)
	}
	return informer
}

func (o *Objects) key(obj Object) string {
	o.t.Helper()
	key, err := informers.KeyOf(obj)
	if err != nil {
		o.t.Fatal(err)
	}
	return key.String()
}

// Stored stores the objects of one cluster-scoped resource in memory. storage.Typed stores them in etcd.
type Stored struct {
	resource schema.GroupResource
	informer *informers.Informer
	keep     func(runtime.Object) runtime.Object // what the informer keeps of an object

	mu         sync.Mutex
	version    int
	objects    map[string]Object
	unreadable map[string]error
	// Writes is the number of objects that were created, changed or deleted.
	Writes int
}

var _ storage.Objects = (*Stored)(nil)

// Fail makes every access to an object fail with err.
func (s *Stored) Fail(cluster logicalcluster.Name, name string, err error) {
	s.unreadable[informers.Key{Cluster: cluster, Name: name}.String()] = err
}

func keyIn(ctx context.Context, name string) (string, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	return informers.Key{Cluster: cluster, Name: name}.String(), err
}

// put stores an object under a new version; s.mu is held.
func (s *Stored) put(key string, obj Object) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[key] = obj
}

// get returns the key and the object of a name; s.mu is held.
func (s *Stored) get(ctx context.Context, name string) (string, Object, error) {
	key, err := keyIn(ctx, name)
	if err == nil {
		err = s.unreadable[key]
	}
	if err != nil {
		return key, nil, err
	}
	obj, ok := s.objects[key]
	if !ok {
		return key, nil, apierrors.NewNotFound(s.resource, name)
	}
	return key, obj, nil
}

// show stores obj, or deletes old if obj is nil, and updates the informer; s.mu is held.
func (s *Stored) show(key string, old, obj Object) error {
	s.Writes++
	if obj == nil {
		delete(s.objects, key)
		return s.informer.Indexer().Delete(old)
	}
	s.put(key, obj)
	return s.informer.Indexer().Add(s.keep(obj.DeepCopyObject()))
}

func copyInto(out runtime.Object, obj Object) {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
}

// Create implements storage.Objects.
func (s *Stored) Create(ctx context.Context, name string, obj runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, _, err := s.get(ctx, name)
	if err == nil {
		return apierrors.NewAlreadyExists(s.resource, name)
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	return s.show(key, nil, In(string(cluster), obj.DeepCopyObject().(Object)))
}

// CreateAsRead is Create for an object that IsAsRead.
func (s *Stored) CreateAsRead(ctx context.Context, name string, obj runtime.Object) error {
	if err := IsAsRead(obj); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return s.Create(ctx, name, obj)
}

// IsAsRead returns an error if obj does not equal what reading it returns after it is stored.
func IsAsRead(obj runtime.Object) error {
	content, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	read := reflect.New(reflect.TypeOf(obj).Elem()).Interface()
	if err := json.Unmarshal(content, read); err != nil {
		return err
	}
	if !reflect.DeepEqual(read, obj) {
		return fmt.Errorf("it is read as another object: %s", cmp.Diff(obj, read))
	}
	return nil
}

// Get implements storage.Objects.
func (s *Stored) Get(ctx context.Context, name string, out runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, obj, err := s.get(ctx, name)
	if err == nil {
		copyInto(out, obj)
	}
	return err
}

// Update implements storage.Objects.
func (s *Stored) Update(ctx context.Context, name string, into runtime.Object, change func(obj runtime.Object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, obj, err := s.get(ctx, name)
	if err != nil {
		return err
	}
	changed := obj.DeepCopyObject().(Object)
	if err := change(changed); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(obj, changed) {
		if err := s.show(key, obj, changed); err != nil {
			return err
		}
	}
	copyInto(into, changed)
	return nil
}

// Replace implements storage.Objects.
func (s *Stored) Replace(ctx context.Context, name string, obj, into runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, _, err := s.get(ctx, name)
	if s.unreadable[key] == nil {
		return apierrors.NewConflict(s.resource, name, err)
	}
	delete(s.unreadable, key)
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	stored := In(string(cluster), obj.DeepCopyObject().(Object))
	copyInto(into, stored)
	return s.show(key, nil, stored)
}

// Delete implements storage.Objects.
func (s *Stored) Delete(ctx context.Context, name string, into runtime.Object, allowed func(obj runtime.Object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, obj, err := s.get(ctx, name)
	if err == nil {
		err = allowed(obj.DeepCopyObject())
	}
	if err != nil {
		return err
	}
	copyInto(into, obj)
	return s.show(key, obj, nil)
}

// Release implements storage.Objects.
func (s *Stored) Release(ctx context.Context, name string, uid types.UID, finalizer string, _ func() runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, obj, err := s.get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	live, err := meta.Accessor(obj)
	if err != nil || live.GetUID() != uid || live.GetDeletionTimestamp() == nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(live.GetFinalizers()), func(f string) bool { return f == finalizer })
	if len(left) == 0 {
		return s.show(key, obj, nil)
	}
	changed := obj.DeepCopyObject().(Object)
	changed.SetFinalizers(left)
	return s.show(key, obj, changed)
}

// Late is an informers.Acknowledged for events that arrive when a caller waits for them: it calls the function, which shows the objects.
type Late func()

// Last implements informers.Acknowledged.
func (l Late) Last(logicalcluster.Name) uint64 {
	l()
	return 0
}

// Forget implements informers.Acknowledged.
func (Late) Forget(logicalcluster.Name, uint64) {}
