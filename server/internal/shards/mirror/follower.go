package mirror

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
)

const (
	// maxHistory is how many changes are kept for watches that resume.
	maxHistory = 1000
	// fillTimeout is how long a request waits for the first list.
	fillTimeout = 10 * time.Second
)

// change is a change of one object. Before is nil for a new object, after for a deleted one. The objects must not change.
type change struct {
	version       uint64
	before, after *unstructured.Unstructured
}

// follower has the objects of one publication. It is the store of a reflector, which calls it from one goroutine.
type follower struct {
	client  dynamic.ResourceInterface
	kind    schema.GroupVersionKind // of bookmarks
	mirrors *Mirrors
	account *account
	cancel  context.CancelFunc

	mu      sync.Mutex // guards what follows
	objects map[string]*unstructured.Unstructured
	bytes   int64
	dropped bool
	// problem is why not all objects are here; empty if they are.
	problem string
	// version is that of the newest state, oldest the one after which history has every change.
	version, oldest uint64
	history         []change
	// epoch counts the instances of the cache server: versions of different epochs cannot be compared.
	epoch    int
	reset    bool          // the next list is that of another instance
	changed  chan struct{} // closed at the next change
	full     chan struct{} // closed after the first list
	relist   context.CancelFunc
	watchers int
	used     time.Time
}

var (
	_ cache.ReflectorStore         = (*follower)(nil)
	_ cache.ResourceVersionUpdater = (*follower)(nil)
)

func newFollower(client dynamic.ResourceInterface, m *Mirrors, of *account, kind schema.GroupVersionKind) *follower {
	return &follower{
		client: client, kind: kind, reset: true, mirrors: m, account: of, objects: map[string]*unstructured.Unstructured{},
		changed: make(chan struct{}), full: make(chan struct{}),
	}
}

// run lists and watches until ctx ends.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		reading, cancel := context.WithCancel(ctx)
		f.mu.Lock()
		f.relist = cancel
		f.mu.Unlock()
		lw := informers.PagedList{ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return f.client.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return f.client.Watch(ctx, options)
			},
		}}
		cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, f, cache.ReflectorOptions{Name: "published"}).RunWithContext(reading)
		cancel()
	}
}

// again lists another instance of the cache server. Until then, the objects stay.
func (f *follower) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset = true
	if f.relist != nil {
		f.relist()
	}
}

// retry lists again if not all objects are here: there may be room for them now.
func (f *follower) retry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" && f.relist != nil {
		f.relist()
	}
}

// announce wakes the watches. The caller holds mu.
func (f *follower) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// filled waits for the first list.
func (f *follower) filled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	select {
	case <-f.full:
	case <-ctx.Done():
		return unavailable("the published objects are on another shard, and are not read yet: retry the request")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" {
		return unavailable(f.problem)
	}
	return nil
}

func unavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// use records that a client reads.
func (f *follower) use(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = now
}

// unusedSince returns when the last client has read, and whether none watches.
func (f *follower) unusedSince() (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used, f.watchers == 0
}

// drop forgets all objects, and returns how many bytes they had.
func (f *follower) drop() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = true
	f.announce()
	return f.bytes
}

// Add implements cache.ReflectorStore.
func (f *follower) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f *follower) Update(obj any) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.put(received(u))
		f.announce()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *follower) Delete(obj any) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remove(u.GetName(), versionOf(u.GetResourceVersion()))
		f.announce()
	}
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater, for every event and bookmark.
func (f *follower) UpdateResourceVersion(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = max(f.version, versionOf(version))
}

// Resync implements cache.ReflectorStore.
func (f *follower) Resync() error { return nil }

// Replace implements cache.ReflectorStore. In the history, what has changed since the last list is in the order of its versions.
func (f *follower) Replace(objs []any, version string) error {
	var all []*unstructured.Unstructured
	present := map[string]bool{}
	for _, obj := range objs {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			present[u.GetName()] = true
			all = append(all, received(u))
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(versionOf(a.GetResourceVersion()), versionOf(b.GetResourceVersion()))
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = ""
	if f.reset {
		f.forget()
	}
	for _, u := range all {
		f.put(u)
	}
	f.version = max(f.version, versionOf(version))
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		if !present[name] {
			f.remove(name, f.version)
		}
	}
	if f.reset {
		f.history, f.oldest, f.reset = nil, f.version, false
	}
	f.announce()
	select {
	case <-f.full:
	default:
		close(f.full)
	}
	return nil
}

// forget removes everything, and ends the watches. The caller holds mu.
func (f *follower) forget() {
	f.reserve(-f.bytes)
	clear(f.objects)
	f.epoch++
	f.history, f.version, f.oldest = nil, 0, 0
}

// put stores an object that is newer than the one that is here. The caller holds mu.
func (f *follower) put(u *unstructured.Unstructured) {
	before := f.objects[u.GetName()]
	if before != nil && before.GetResourceVersion() == u.GetResourceVersion() {
		return
	}
	more := sizeOf(u) - sizeOf(before)
	if len(f.objects) >= maxObjects && before == nil || f.bytes+more > maxBytes || !f.reserve(more) {
		if f.problem == "" {
			f.problem = "the published objects of another shard exceed the limits of this shard"
			f.epoch++ // ends the watches, which would miss changes
		}
		return
	}
	f.objects[u.GetName()] = u
	f.record(change{versionOf(u.GetResourceVersion()), before, u})
}

// remove removes an object. The caller holds mu.
func (f *follower) remove(name string, version uint64) {
	if before := f.objects[name]; before != nil {
		f.reserve(-sizeOf(before))
		delete(f.objects, name)
		f.record(change{version, before, nil})
	}
}

// record adds a change to the history. The caller holds mu.
func (f *follower) record(c change) {
	f.version = max(f.version, c.version)
	f.history = append(f.history, c)
	if len(f.history) > maxHistory {
		f.oldest = f.history[0].version
		f.history = slices.Delete(f.history, 0, 1)
	}
}

// reserve counts more bytes. The caller holds mu.
func (f *follower) reserve(more int64) bool {
	if f.dropped || !f.mirrors.reserve(f.account, more) {
		return false
	}
	f.bytes += more
	return true
}

func sizeOf(u *unstructured.Unstructured) int64 {
	if u == nil {
		return 0
	}
	return storage.SizeOf(u)
}

func versionOf(text string) uint64 {
	version, _ := strconv.ParseUint(text, 10, 64) // zero is older than all
	return version
}

// received returns an object without what the feed has added to it. Its resource version stays that of the cache server.
func received(u *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := u.GetAnnotations()
	if uid := annotations[cacheserver.OriginalUID]; uid != "" {
		u.SetUID(types.UID(uid))
	}
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "internal.kcp.io/") || strings.HasPrefix(key, "cache.kcp.io/") || key == cacheserver.Shard ||
			key == corev1.LastAppliedConfigAnnotation
	})
	u.SetAnnotations(annotations)
	return u
}
