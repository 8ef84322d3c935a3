package storage

import (
	"bytes"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// fanouts let the watches of the same keys share what they deliver, so that an event is serialized once and not once for
// every watch. There is one for each set of keys that is watched just now, and none for any other.
type fanouts struct {
	mu     sync.Mutex
	byKeys map[fanoutKeys]*fanout
}

// fanoutKeys are those of one storage that begin with a prefix.
type fanoutKeys struct {
	storage *clusterStorage
	prefix  string
}

// remembered is how many events back a watch may be behind another and still share with it.
const remembered = 64

type fanout struct {
	mu      sync.Mutex
	watches int
	recent  [remembered]*shared // by their version
}

func newFanouts() *fanouts { return &fanouts{byKeys: map[fanoutKeys]*fanout{}} }

// join returns w, or a watch of the same events whose objects are shared with the other watches of keys.
func (f *fanouts) join(keys fanoutKeys, w watch.Interface) watch.Interface {
	f.mu.Lock()
	defer f.mu.Unlock()
	group := f.byKeys[keys]
	if group == nil {
		group = &fanout{}
		f.byKeys[keys] = group
	}
	group.mu.Lock()
	group.watches++
	group.mu.Unlock()
	member := &sharedWatch{Interface: w, results: make(chan watch.Event, cap(w.ResultChan())), stopped: make(chan struct{})}
	go func() {
		defer f.leave(keys, group)
		member.forward(group)
	}()
	return member
}

func (f *fanouts) leave(keys fanoutKeys, group *fanout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	group.mu.Lock()
	defer group.mu.Unlock()
	if group.watches--; group.watches == 0 {
		delete(f.byKeys, keys)
	}
}

// share returns the object that the watches of a group deliver for an event.
func (g *fanout) share(event watch.Event) runtime.Object {
	m, err := meta.Accessor(event.Object)
	if err != nil || (event.Type != watch.Added && event.Type != watch.Modified && event.Type != watch.Deleted) {
		return event.Object
	}
	last := event.Type == watch.Deleted // the state before the event: not what others may deliver for the same version
	sum := uint(0)
	for _, digit := range m.GetResourceVersion() {
		sum = sum*10 + uint(digit-'0')
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watches < 2 {
		return event.Object
	}
	slot := &g.recent[sum%remembered]
	if s := *slot; s == nil || s.last != last || s.GetResourceVersion() != m.GetResourceVersion() || s.GetUID() != m.GetUID() || s.GetName() != m.GetName() || s.GetNamespace() != m.GetNamespace() {
		*slot = &shared{Object: m, object: event.Object, last: last}
	}
	return *slot
}

// sharedWatch is a watch of a group.
type sharedWatch struct {
	watch.Interface
	results chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *sharedWatch) ResultChan() <-chan watch.Event { return w.results }

func (w *sharedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

// forward delivers events until the watch ends, or whoever has it stops it.
func (w *sharedWatch) forward(group *fanout) {
	defer close(w.results)
	for event := range w.Interface.ResultChan() {
		event.Object = group.share(event)
		select {
		case w.results <- event:
		case <-w.stopped:
			return
		}
	}
}

// shared is an object that several watches deliver. It implements runtime.CacheableObject: it is serialized once in every
// form. Nobody may change it.
type shared struct {
	metav1.Object
	object runtime.Object
	last   bool

	mu    sync.Mutex
	forms map[runtime.Identifier]*form
}

type form struct {
	once sync.Once
	raw  []byte
	err  error
}

// CacheEncode implements runtime.CacheableObject.
func (s *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	s.mu.Lock()
	f := s.forms[id]
	if f == nil {
		if s.forms == nil {
			s.forms = map[runtime.Identifier]*form{}
		}
		f = &form{}
		s.forms[id] = f
	}
	s.mu.Unlock()
	f.once.Do(func() {
		var buffer bytes.Buffer
		f.err = encode(s.GetObject(), &buffer)
		f.raw = buffer.Bytes()
	})
	if f.err != nil {
		return f.err
	}
	if splice, ok := w.(runtime.Splice); ok {
		splice.Splice(f.raw)
		return nil
	}
	_, err := w.Write(f.raw)
	return err
}

// GetObject implements runtime.CacheableObject.
func (s *shared) GetObject() runtime.Object { return s.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (s *shared) GetObjectKind() schema.ObjectKind { return s.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (s *shared) DeepCopyObject() runtime.Object {
	copied := s.object.DeepCopyObject()
	m, _ := meta.Accessor(copied) // as the original has
	return &shared{Object: m, object: copied, last: s.last}
}
