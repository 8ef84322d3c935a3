package storage

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// knownFences is what this process knows of fences, and the watches that they end.
//
// Invariants:
//   - A watch that a change ends is marked before the change is visible: no watch delivers an event that it leaves out by one state, and
//     passes on by the next.
//   - A read that began before a change checks it afterwards: after a process has recorded a fence, it returns nothing of the cluster that
//     another shard may have changed.
type knownFences struct {
	state atomic.Pointer[fenceState]
	until atomic.Pointer[time.Time] // when the state may be outdated

	mu      sync.Mutex
	watches map[logicalcluster.Name]map[*fencedWatch]struct{} // the empty name is that of all clusters
}

// current reports whether the state is not outdated.
func (k *knownFences) current() bool {
	until := k.until.Load()
	return until != nil && time.Now().Before(*until)
}

func (k *knownFences) extend(until time.Time) { k.until.Store(&until) }

// lose makes reads fail until become, and ends all watches.
func (k *knownFences) lose() {
	k.until.Store(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	for cluster := range k.watches {
		k.end(cluster)
	}
}

// become replaces the state.
func (k *knownFences) become(next *fenceState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.state.Load()
	if before == nil {
		before = &fenceState{}
	}
	clusters, all := before.ends(next)
	for _, cluster := range clusters {
		k.end(cluster)
	}
	if all {
		k.end("")
	}
	k.state.Store(next)
}

// end ends the watches of a cluster. The caller holds the lock.
func (k *knownFences) end(cluster logicalcluster.Name) {
	for w := range k.watches[cluster] {
		w.over.Store(true)
		w.cancel()
	}
	delete(k.watches, cluster)
}

// refuse returns the error for a read of a cluster, or of all if it is empty; nil if it may be read.
func (k *knownFences) refuse(cluster logicalcluster.Name) error {
	if !k.current() {
		return later("the server does not know which logical clusters are being moved: retry the request")
	}
	state := k.state.Load()
	if cluster == "" && state.settling > 0 {
		return later("a logical cluster is being moved to or from this shard: retry the request")
	}
	if _, ok := state.fences[cluster]; ok {
		return refusedBy(cluster)
	}
	return nil
}

// Fenced returns the fence of a cluster as this process knows it, without its migration; false if there is none.
func (b *Backend) Fenced(cluster logicalcluster.Name) (Fence, bool) {
	state := b.fences.state.Load()
	if state == nil {
		return Fence{}, false
	}
	known, ok := state.fences[cluster]
	return Fence{State: known.state, Epoch: known.epoch, Shard: known.shard}, ok
}

// Arrived returns the revision at which a cluster arrived in this store, as this process knows it; zero if it was created here.
func (b *Backend) Arrived(cluster logicalcluster.Name) int64 {
	if state := b.fences.state.Load(); state != nil {
		return state.floors[cluster]
	}
	return 0
}

func later(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// outdated returns an error for a read from a version that another store issued, or that precedes the move of a cluster.
func (k *knownFences) outdated(cluster logicalcluster.Name, version int64) error {
	state := k.state.Load()
	floor := state.floors[cluster]
	if cluster == "" {
		floor = state.all
	}
	if version > 0 && version < floor {
		return apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(version, 10) +
			": a logical cluster was moved to or from this shard since; list again")
	}
	return nil
}

// behindFences refuses reads of fenced clusters, and leaves out clusters that are not held here from reads of all.
type behindFences struct {
	storage.Interface
	known *knownFences
}

// target returns the cluster of ctx; empty for all of them.
func target(ctx context.Context) logicalcluster.Name {
	c, _ := logicalcluster.From(ctx)
	return c.Name
}

type wroteKey struct{}

// wrote records that the request of ctx has changed something.
func (f *fences) wrote(ctx context.Context) {
	if f == nil {
		return
	}
	if done, ok := ctx.Value(wroteKey{}).(*bool); ok {
		*done = true
	}
}

// write calls do, which writes. If it wrote nothing because of what it read, its result is that of a read.
func (b behindFences) write(ctx context.Context, do func(context.Context) error) error {
	done := false
	err := do(context.WithValue(ctx, wroteKey{}, &done))
	var read *storage.StorageError
	if done || err != nil && !errors.As(err, &read) {
		return err
	}
	if refused := b.known.refuse(target(ctx)); refused != nil {
		return refused
	}
	return err
}

func (b behindFences) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return b.write(ctx, func(ctx context.Context) error { return b.Interface.Create(ctx, key, obj, out, ttl) })
}

func (b behindFences) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	return b.write(ctx, func(ctx context.Context) error {
		return b.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	})
}

func (b behindFences) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	return b.write(ctx, func(ctx context.Context) error {
		return b.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	})
}

func (b behindFences) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := b.checkVersion(ctx, opts.ResourceVersion, ""); err != nil {
		return err
	}
	err := b.Interface.Get(ctx, key, opts, out)
	if refused := b.known.refuse(target(ctx)); refused != nil {
		return refused
	}
	return err
}

// checkVersion returns an error for a read from the version of another store.
func (b behindFences) checkVersion(ctx context.Context, version, token string) error {
	if err := b.known.refuse(target(ctx)); err != nil {
		return err
	}
	number, err := strconv.ParseInt(version, 10, 64)
	if token != "" {
		_, number, err = storage.DecodeContinue(token, "/")
	}
	if err != nil {
		return nil // the version is empty or invalid, which others report
	}
	return b.known.outdated(target(ctx), number)
}

func (b behindFences) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := b.checkVersion(ctx, opts.ResourceVersion, opts.Predicate.Continue); err != nil {
		return err
	}
	cluster := target(ctx)
	if cluster == "" && b.hidesAny() {
		ctx = context.WithValue(ctx, deferredKey{}, nil) // objects that are not decoded have no cluster yet
	}
	before := b.known.state.Load()
	err := b.Interface.GetList(ctx, key, opts, list)
	if refused := b.known.refuse(cluster); refused != nil {
		return refused
	}
	if err != nil || cluster != "" {
		return err
	}
	if b.known.state.Load().all != before.all {
		return apierrors.NewResourceExpired("a logical cluster was moved to or from this shard during the list; list again")
	}
	return before.leaveOut(list)
}

func (b behindFences) hidesAny() bool { return b.known.state.Load().hidden > 0 }

// leaveOut removes the objects of hidden clusters from a list.
func (s *fenceState) leaveOut(list runtime.Object) error {
	if s.hidden == 0 {
		return nil
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items, kept := reflect.ValueOf(pointer).Elem(), 0
	for i := range items.Len() {
		if obj, ok := items.Index(i).Addr().Interface().(runtime.Object); ok && s.hidesObject(obj) {
			continue
		}
		items.Index(kept).Set(items.Index(i))
		kept++
	}
	items.SetLen(kept)
	return nil
}

func (s *fenceState) hidesObject(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && s.hides(logicalcluster.Of(m))
}

// fencedWatch is a watch that a fence ends. Its client resumes at its position, and gets an error if it must list again.
type fencedWatch struct {
	watch.Interface
	known   *knownFences
	cluster logicalcluster.Name
	cancel  context.CancelFunc
	over    atomic.Bool
}

func (b behindFences) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &fencedWatch{known: b.known, cluster: target(ctx), cancel: cancel}
	b.known.begin(w)
	err := b.checkVersion(ctx, opts.ResourceVersion, "")
	if err == nil {
		w.Interface, err = b.Interface.Watch(ctx, key, opts)
	}
	if err != nil {
		b.known.forget(w)
		return nil, err
	}
	return w, nil
}

func (k *knownFences) begin(w *fencedWatch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watches == nil {
		k.watches = map[logicalcluster.Name]map[*fencedWatch]struct{}{}
	}
	if k.watches[w.cluster] == nil {
		k.watches[w.cluster] = map[*fencedWatch]struct{}{}
	}
	k.watches[w.cluster][w] = struct{}{}
}

func (k *knownFences) forget(w *fencedWatch) {
	w.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.watches[w.cluster], w); len(k.watches[w.cluster]) == 0 {
		delete(k.watches, w.cluster)
	}
}

// Stop implements watch.Interface.
func (w *fencedWatch) Stop() {
	w.known.forget(w)
	w.Interface.Stop()
}

// leavesOut reports whether a watch does not deliver an event: it has ended, or is one of all clusters and the object is hidden.
func leavesOut(source watch.Interface, event watch.Event) bool {
	w, ok := source.(*fencedWatch)
	if !ok {
		return false
	}
	if !w.known.current() {
		w.over.Store(true)
		w.cancel()
	}
	hidden := w.cluster == "" && event.Object != nil && w.known.state.Load().hidesObject(event.Object)
	return hidden || w.over.Load() // in this order: see become
}
