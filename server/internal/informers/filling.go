package informers

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// Stored is the storage of a resource.
type Stored interface {
	// Read returns the current state of an object, or nil if it does not exist or cannot be decoded: lists leave such objects out, too. The
	// caller reads again after an error.
	Read(ctx context.Context, key Key) (runtime.Object, error)
	Revisions
}

const (
	// readTimeout limits one read of a stored object.
	readTimeout = 5 * time.Second
	// readPause is the pause after a read that failed, and progressPause between two requests for progress.
	readPause, progressPause = 100 * time.Millisecond, 100 * time.Millisecond
	// turnTimeout limits how long look-ups wait for the end of the reads. If the informer does not get the last events in this time, the
	// look-ups continue to read what is stored.
	turnTimeout = time.Second
)

// filling makes look-ups by name read what is stored until an informer of very many objects is filled, so that a server with a million
// logical clusters serves requests long before it has read all of them. What needs more than one object must not begin before WaitForSync.
//
// Invariants:
//   - No look-up finds an older state than an earlier one. Look-ups that read what is stored hold turn for reading. The informer reads the
//     last revision while it holds turn for writing, and then done is set when the informer has that revision: everything that any look-up
//     has read.
//   - An object that cannot be read is never absent: the look-up reads again, until the informer is filled, or has ended with the server.
//     Until then, new requests are refused, as always while etcd does not respond.
type filling struct {
	stored    Stored
	transform func(runtime.Object)
	turn      sync.RWMutex
	done      atomic.Bool
	filled    chan struct{} // closed when done is set
	ended     chan struct{} // closed when the informer has ended
}

// ReadStored makes look-ups of single objects read stored until the informer is filled. It must be called before Run. The transform of the
// informer must not share memory among objects.
func (i *Informer) ReadStored(stored Stored) {
	i.filling = &filling{
		stored: stored, transform: i.transform, filled: make(chan struct{}), ended: make(chan struct{}),
	}
}

// IsFilled reports whether look-ups read the store of the informer. If not, they find everything that is stored when IsFilled is called,
// also when they no longer read what is stored.
func (i *Informer) IsFilled() bool {
	f := i.filling
	if f == nil || f.done.Load() {
		return true
	}
	f.turn.RLock()
	defer f.turn.RUnlock()
	return f.done.Load()
}

// Filled returns a channel that is closed when the first full list is in the store, the handlers have handled it, and look-ups read the
// store.
func (i *Informer) Filled() <-chan struct{} {
	if i.filling == nil {
		return i.synced
	}
	return i.filling.filled
}

// WaitForChanges returns when handlers receive every change of the objects that look-ups find from now on, when ctx ends, or when the
// server stops. The wait can be long: stand gives the seat of the request back, and returns a function that takes it again.
func (i *Informer) WaitForChanges(ctx context.Context, stand func() (sit func())) {
	if i.filling == nil || i.filling.done.Load() {
		return
	}
	defer stand()()
	select {
	case <-i.synced:
	case <-i.filling.ended:
	case <-stopping(ctx):
	case <-ctx.Done():
	}
}

// stopping returns a channel that is closed when the server that serves a request stops, nil if ctx is not of a request.
func stopping(ctx context.Context) <-chan struct{} {
	if signals := request.ServerShutdownSignalFrom(ctx); signals != nil {
		return signals.ShuttingDown()
	}
	return nil
}

// catchUp ends the reads of stored objects when the store has everything that was stored after its first full list, or when ctx ends.
func (i *Informer) catchUp(ctx context.Context) {
	select {
	case <-i.synced:
	case <-ctx.Done():
		return
	}
	for i.reach(ctx) && !i.end(ctx) { // almost everything arrives while look-ups continue
	}
}

// end makes look-ups read the store of the informer, and reports whether it succeeded. Look-ups wait for it.
func (i *Informer) end(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	i.filling.turn.Lock()
	defer i.filling.turn.Unlock()
	if !i.reach(ctx) {
		return false
	}
	i.filling.done.Store(true)
	close(i.filling.filled)
	return true
}

// reach waits until the store has everything that was stored when it was called. It returns false if ctx ends earlier.
func (i *Informer) reach(ctx context.Context) bool {
	revision := uint64(0)
	for revision == 0 && ctx.Err() == nil {
		var err error
		if revision, err = i.filling.stored.Revision(ctx); err != nil {
			i.unread(ctx, err)
		}
	}
	arrived, forget := i.waiting.expect(revision)
	defer forget()
	var requests ProgressRequests
	for i.version.Load() < revision {
		_ = requests.Send(ctx, i.filling.stored) // repeated if it fails
		select {
		case <-arrived:
		case <-time.After(progressPause):
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// lookUp returns an object of this shard.
func (i *Informer) lookUp(key Key) (runtime.Object, bool) {
	if i.filling != nil {
		if obj, read := i.readStored(key); read {
			return obj, obj != nil
		}
	}
	return i.store.get(key.String())
}

// lookFor reports whether lookUp returns an object.
func (i *Informer) lookFor(key Key) bool {
	if i.filling != nil {
		if obj, read := i.readStored(key); read {
			return obj != nil
		}
	}
	return i.store.has(key.String())
}

// readStored returns a stored object, or nil; and false if the caller must look in the store of the informer instead.
func (i *Informer) readStored(key Key) (obj runtime.Object, read bool) {
	for !i.filling.done.Load() {
		obj, read, err := i.tryRead(key)
		if err == nil {
			return obj, read
		}
		select {
		case <-i.filling.ended:
			return nil, false
		default:
		}
		i.unread(context.Background(), err)
	}
	return nil, false
}

// tryRead is readStored without repetition.
func (i *Informer) tryRead(key Key) (obj runtime.Object, read bool, err error) {
	i.filling.turn.RLock()
	defer i.filling.turn.RUnlock()
	if i.filling.done.Load() {
		return nil, false, nil
	}
	obj, err = i.read(key)
	return obj, true, err
}

// read returns a stored object as the informer will have it, or nil.
func (i *Informer) read(key Key) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	obj, err := i.filling.stored.Read(ctx, key)
	if obj == nil || err != nil {
		return nil, err
	}
	if transform := i.filling.transform; transform != nil {
		transform(obj)
	}
	return obj, nil
}

// unread waits after a read that failed.
func (i *Informer) unread(ctx context.Context, err error) {
	klog.FromContext(ctx).V(2).Info("Reading the storage failed while an informer is not filled, will retry",
		decisionlog.Resource, i.resource.GroupResource(), decisionlog.Error, err)
	select {
	case <-time.After(readPause):
	case <-ctx.Done():
	}
}

// LookUps are the look-ups of single objects in an informer.
type LookUps struct{ *Informer }

// Version returns the resource version up to which look-ups have all changes: the largest number while they read what is stored.
func (l LookUps) Version() uint64 {
	if l.filling != nil && !l.filling.done.Load() {
		return math.MaxUint64
	}
	return l.Informer.Version()
}
