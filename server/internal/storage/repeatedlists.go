package storage

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// repeatedTime is how long a list can be repeated. It limits how late a list can be that does not have to be the current one: other
	// servers of the same etcd, and etcd itself when a lease ends, change objects too.
	repeatedTime = 500 * time.Millisecond
	// repeatedWeight limits the memory of repeated lists, and repeatedShare is the part of it that one list can take.
	repeatedWeight, repeatedShare = 8 << 20, 4
	// askedSlots is the number of collections that were recently listed once.
	askedSlots = 1024
)

// repeatedLists are whole collections of one cluster that clients list again and again in any version. Such a list is repeated without
// reading it from etcd, until this server writes an object of its collection, and for at most repeatedTime.
//
// Invariants:
//   - A list that was read before a write of this server ended is not repeated afterwards: changed counts the writes of a collection, and
//     the number is read before the list.
//   - A list is repeated only if a request could read it now: see clusterStorage.mayRepeat.
//   - Objects are shared and must not be modified, like those of a decodeCache.
//   - A removed list is garbage at once, so that weight has all memory of lists: timers have weak pointers.
type repeatedLists struct {
	sizes  *sizes
	sizers *sizers

	mu     sync.Mutex
	weight int64
	lists  map[collection]*repeatedList
	asked  [askedSlots]askedList
}

// collection is the objects with keys that begin with a prefix, as a storage decodes them.
type collection struct {
	storage *clusterStorage
	prefix  string
}

type askedList struct {
	of      collection
	changes uint32
	until   time.Time
}

type repeatedList struct {
	changes  uint32
	until    time.Time
	weight   int64
	version  uint64
	resource string        // the version as it is in the list
	items    reflect.Value // a slice
	expiry   *time.Timer   // removes the list
}

func newRepeatedLists(s *sizes, of *sizers) *repeatedLists {
	return &repeatedLists{sizes: s, sizers: of, lists: map[collection]*repeatedList{}}
}

// mayRepeat reports whether the list of ctx can be one that another request has read: a whole collection in one cluster for a client, and
// not for an informer.
func (s *clusterStorage) mayRepeat(ctx context.Context, opts storage.ListOptions) bool {
	match := opts.ResourceVersionMatch
	newest := opts.ResourceVersion == "0" && (match == "" || match == metav1.ResourceVersionMatchNotOlderThan)
	whole := opts.Recursive && opts.Predicate.Empty() && opts.Predicate.Limit == 0 && opts.Predicate.Continue == ""
	c, ok := logicalcluster.From(ctx)
	plain := ctx.Value(standInKey{}) == nil && ctx.Value(ownedKey{}) == nil
	return s.repeated != nil && !s.own && newest && whole && plain && ok && !c.Wildcard
}

// list repeats a list into list, or reads it.
func (r *repeatedLists) list(ctx context.Context, of collection, list runtime.Object, read func() error) error {
	ticket := fairqueue.From(ctx)
	if known := r.current(ctx, of); known != nil {
		if err := ticket.Take(known.weight); err != nil {
			return err
		}
		if r.current(ctx, of) == known { // Take can have waited for long
			return known.copyTo(list)
		}
		ticket.Release(known.weight) // read reserves what it needs
	}
	changes, begun := r.sizes.changes(of.prefix), time.Now()
	if err := read(); err != nil {
		return err
	}
	r.add(of, changes, begun, list)
	return nil
}

// current returns the list that a request can repeat now, nil without one.
func (r *repeatedLists) current(ctx context.Context, of collection) *repeatedList {
	known := r.get(of, r.sizes.changes(of.prefix))
	if known == nil || !of.storage.readable(ctx, known.version) {
		return nil
	}
	return known
}

// readable reports whether a move of the cluster of ctx leaves what was read in a version valid.
func (s *clusterStorage) readable(ctx context.Context, version uint64) bool {
	if s.fences == nil {
		return true
	}
	known := &s.fences.knownFences
	return known.refuse(target(ctx)) == nil && known.outdated(target(ctx), int64(version)) == nil
}

func (r *repeatedLists) get(of collection, changes uint32) *repeatedList {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.lists[of]; known.valid(changes) {
		return known
	}
	return nil
}

// valid reports whether a list has all of a number of changes, and is not too old. A nil list is not valid.
func (r *repeatedList) valid(changes uint32) bool {
	return r != nil && r.changes == changes && time.Now().Before(r.until)
}

// add keeps a list that was begun to be read at a time, if it was listed before, and not changed since then.
func (r *repeatedLists) add(of collection, changes uint32, begun time.Time, list runtime.Object) {
	if !r.wants(of, changes, begun) {
		return
	}
	read, err := r.newList(list)
	if err != nil || read.weight > repeatedWeight/repeatedShare {
		return
	}
	read.changes, read.until = changes, begun.Add(repeatedTime)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lists[of].valid(changes) {
		return // a request at the same time has added it
	}
	r.remove(of)
	if r.weight+read.weight > repeatedWeight {
		return
	}
	r.lists[of] = read
	r.weight += read.weight
	kept := weak.Make(read)
	read.expiry = time.AfterFunc(time.Until(read.until), func() { r.expire(of, kept) })
}

// wants reports whether a list is the second one of an unchanged collection within a short time.
func (r *repeatedLists) wants(of collection, changes uint32, begun time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.asked[r.sizes.slot(of.prefix)%askedSlots]
	again := last.of == of && last.changes == changes && begun.Before(last.until)
	*last = askedList{of, changes, begun.Add(repeatedTime)}
	return again
}

// remove removes a list; r.mu is held.
func (r *repeatedLists) remove(of collection) {
	if known := r.lists[of]; known != nil {
		delete(r.lists, of)
		r.weight -= known.weight
		known.expiry.Stop()
	}
}

// expire removes a list, unless another one has replaced it.
func (r *repeatedLists) expire(of collection, list weak.Pointer[repeatedList]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.lists[of]; known != nil && weak.Make(known) == list {
		r.remove(of)
	}
}

// forget removes what refers to a closed storage.
func (r *repeatedLists) forget(closed *clusterStorage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.lists {
		if of.storage == closed {
			r.remove(of)
		}
	}
	for i := range r.asked {
		if r.asked[i].of.storage == closed {
			r.asked[i] = askedList{}
		}
	}
}

// newList returns a list with the memory that a response takes: about that of its objects.
func (r *repeatedLists) newList(list runtime.Object) (*repeatedList, error) {
	items, err := itemsOf(list)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(m.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	weight := int64(0)
	for i := range items.Len() {
		obj, ok := items.Index(i).Addr().Interface().(runtime.Object)
		if !ok {
			return nil, fmt.Errorf("a list has items of type %s", items.Type().Elem())
		}
		weight += r.sizers.sizeOf(obj)
	}
	return &repeatedList{version: version, resource: m.GetResourceVersion(), items: cloneItems(items), weight: weight}, nil
}

// copyTo makes list the same list. The caller owns the slice of its objects.
func (r *repeatedList) copyTo(list runtime.Object) error {
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	items.Set(cloneItems(r.items))
	m.SetResourceVersion(r.resource)
	return nil
}

// itemsOf returns the slice of objects of a list.
func itemsOf(list runtime.Object) (reflect.Value, error) {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return reflect.Value{}, err
	}
	return reflect.ValueOf(pointer).Elem(), nil
}

func cloneItems(items reflect.Value) reflect.Value {
	cloned := reflect.MakeSlice(items.Type(), items.Len(), items.Len())
	reflect.Copy(cloned, items)
	return cloned
}
