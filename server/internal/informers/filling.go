package informers

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// Stored is the storage of a resource.
type Stored interface {
	// Read returns the current state of an object, or nil if it does not exist.
	Read(ctx context.Context, key Key) (runtime.Object, error)
	// Revision returns the revision of the last change in the storage, of any resource. Progress makes informers receive it soon.
	Revision(ctx context.Context) (uint64, error)
	Progress(ctx context.Context) error
}

const (
	// readTimeout limits one read of a stored object.
	readTimeout = 5 * time.Second
	// readPause is the pause after a read that failed, and progressPause between two requests for progress.
	readPause, progressPause = 100 * time.Millisecond, time.Second
)

// filling makes look-ups by name read what is stored until an informer of very many objects is filled, so that a server with a million
// logical clusters serves requests long before it has read all of them. What needs more than one object must not begin before WaitForSync.
//
// Invariants:
//   - A look-up reads the store only after the store has had everything that was stored at a time when it was filled. Therefore no look-up
//     finds an older state than an earlier one that has read what is stored.
//   - An object that cannot be read is never absent: the look-up reads again, until the informer is filled, or has ended with the server.
type filling struct {
	stored    Stored
	transform func(runtime.Object)
	done      atomic.Bool
	ended     atomic.Bool // the informer has ended without being filled
}

// ReadStored makes look-ups of single objects read stored until the informer is filled. It must be called before Run. The transform of the
// informer must not share memory among objects.
func (i *Informer) ReadStored(stored Stored) {
	i.filling = &filling{stored: stored, transform: i.transform}
}

// IsFilled reports whether look-ups read the store. If not, they find what is stored. Look-ups call it before they read the store.
func (i *Informer) IsFilled() bool { return i.filling == nil || i.filling.done.Load() }

// WaitForChanges returns when handlers receive every change of the objects that look-ups find from now on, or when ctx ends.
func (i *Informer) WaitForChanges(ctx context.Context) {
	if i.IsFilled() {
		return
	}
	select {
	case <-i.synced:
	case <-ctx.Done():
	}
}

// catchUp ends the reads of stored objects when the store has everything that was stored after its first full list, or when ctx ends.
func (i *Informer) catchUp(ctx context.Context) {
	defer i.filling.ended.Store(true)
	select {
	case <-i.synced:
	case <-ctx.Done():
		return
	}
	revision := uint64(0)
	for revision == 0 && ctx.Err() == nil {
		var err error
		if revision, err = i.filling.stored.Revision(ctx); err != nil {
			i.unread(ctx, err)
		}
	}
	arrived, forget := i.waiting.expect(revision)
	defer forget()
	for i.version.Load() < revision {
		_ = i.filling.stored.Progress(ctx) // asked again if it fails
		select {
		case <-arrived:
		case <-time.After(progressPause):
		case <-ctx.Done():
			return
		}
	}
	i.filling.done.Store(true)
}

// lookUp returns an object of this shard.
func (i *Informer) lookUp(key Key) (runtime.Object, bool) {
	for !i.IsFilled() {
		obj, err := i.read(key)
		if err == nil {
			return obj, obj != nil
		}
		if i.filling.ended.Load() {
			break
		}
		i.unread(context.Background(), err)
	}
	return i.store.get(key.String())
}

// lookFor reports whether lookUp returns an object.
func (i *Informer) lookFor(key Key) bool {
	if !i.IsFilled() {
		_, ok := i.lookUp(key)
		return ok
	}
	return i.store.has(key.String())
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
	if !l.IsFilled() {
		return math.MaxUint64
	}
	return l.Informer.Version()
}
