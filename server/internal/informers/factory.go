package informers

import (
	"context"
	"fmt"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Factory makes one informer for each resource, which all parts of the process share.
type Factory struct {
	mu        sync.Mutex
	sources   map[schema.GroupVersionResource]cache.ListerWatcher
	informers map[schema.GroupVersionResource]*Informer
	started   map[schema.GroupVersionResource]bool
	running   sync.WaitGroup
	// mayFill is closed by Fill.
	mayFill chan struct{}
	fill    func()

	stored       map[schema.GroupVersionResource]Stored
	acknowledged func(schema.GroupResource) Acknowledged
	indexed      bool
}

// NewFactory returns a factory without informers.
func NewFactory() *Factory {
	mayFill := make(chan struct{})
	return &Factory{
		mayFill: mayFill, fill: sync.OnceFunc(func() { close(mayFill) }),
		sources:   map[schema.GroupVersionResource]cache.ListerWatcher{},
		stored:    map[schema.GroupVersionResource]Stored{},
		informers: map[schema.GroupVersionResource]*Informer{},
		started:   map[schema.GroupVersionResource]bool{},
	}
}

// From makes the informer of a resource read from source, which lists and watches all clusters. It must be called before For, unless the
// informer is never started.
func (f *Factory) From(resource schema.GroupVersionResource, source cache.ListerWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources[resource] = source
}

// ReadStored makes look-ups read stored until the informer of a resource is filled, if there may be very many of its objects. It must be
// called before For.
func (f *Factory) ReadStored(resource schema.GroupVersionResource, stored Stored) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored[resource] = stored
}

// Acknowledge makes Informer.Current of all informers wait for what acknowledged returns for their resources. It must be called before For.
func (f *Factory) Acknowledge(acknowledged func(schema.GroupResource) Acknowledged) {
	f.acknowledged = acknowledged
}

// Index makes the informers of all kinds have indexes, for tests that fill them. It must be called before For.
func (f *Factory) Index() { f.indexed = true }

// For returns the informer of a kind. It runs from the next Start on.
func (f *Factory) For(kind Kind) (*Informer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.informers[kind.Resource]; ok {
		return i, nil
	}
	i, err := f.make(kind)
	if err != nil {
		return nil, err
	}
	if stored := f.stored[kind.Resource]; stored != nil && (kind.Packed || kind.PackedInOrder) {
		i.ReadStored(stored)
	}
	if f.acknowledged != nil {
		i.Acknowledge(f.acknowledged(kind.Resource.GroupResource()))
	}
	f.informers[kind.Resource] = i
	return i, nil
}

func (f *Factory) make(kind Kind) (*Informer, error) {
	source := f.sources[kind.Resource]
	keep := func(runtime.Object) {}
	if kind.Transform != nil {
		keep = kind.Transform()
	}
	if kind.Packed && !f.indexed {
		return NewPacked(kind.Resource, kind.Example, source, keep)
	}
	if kind.PackedInOrder {
		return NewPackedInOrder(kind.Resource, kind.Example, source, keep)
	}
	i := New(kind.Resource, kind.Example, source, nil)
	if kind.Transform != nil {
		i.AddTransform(keep)
	}
	return i, nil
}

// Oldest returns the resource version up to which the changes of all resources are in the informers.
func (f *Factory) Oldest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := uint64(math.MaxUint64)
	for resource := range f.started {
		oldest = min(oldest, f.informers[resource].Version())
	}
	return oldest
}

// Existing returns the informer of a resource if For has made one.
func (f *Factory) Existing(resource schema.GroupVersionResource) (*Informer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.informers[resource]
	return i, ok
}

// Start runs every informer that is not running yet, until ctx ends. It panics if From has not set the source of one. Those of ReadStored
// begin after Fill.
func (f *Factory) Start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, i := range f.informers {
		if f.started[r] {
			continue
		}
		if f.sources[r] == nil {
			panic(fmt.Sprintf("starting the informer of %s: it has no source: call From before For", r))
		}
		f.started[r] = true
		f.running.Go(func() {
			if i.filling == nil {
				i.Run(ctx)
				return
			}
			defer close(i.filling.ended)
			if f.WaitForLookUps(ctx) != nil { // look-ups need the others first
				return
			}
			select {
			case <-f.mayFill:
				i.Run(ctx)
			case <-ctx.Done():
			}
		})
	}
}

// Fill makes the informers of ReadStored begin. If there are very many objects, this takes all processors for a while: a server calls Fill
// when it needs them for nothing else to become ready.
func (f *Factory) Fill() { f.fill() }

// WaitForSync returns when every informer that For has made is filled, see Informer.Filled, or with the error of ctx.
func (f *Factory) WaitForSync(ctx context.Context) error {
	return f.wait(ctx, func(*Informer) bool { return true })
}

// WaitForLookUps returns when look-ups of single objects find everything, or with the error of ctx: some informers may not be filled.
func (f *Factory) WaitForLookUps(ctx context.Context) error {
	return f.wait(ctx, func(i *Informer) bool { return i.filling == nil })
}

func (f *Factory) wait(ctx context.Context, forOne func(*Informer) bool) error {
	f.mu.Lock()
	all := make([]*Informer, 0, len(f.informers))
	for _, i := range f.informers {
		if forOne(i) {
			all = append(all, i)
		}
	}
	f.mu.Unlock()
	for _, i := range all {
		select {
		case <-i.Filled():
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of all clusters: %w", i.resource.GroupResource(), ctx.Err())
		}
	}
	return nil
}

// Wait returns when all informers have stopped, after their context has ended.
func (f *Factory) Wait() { f.running.Wait() }
