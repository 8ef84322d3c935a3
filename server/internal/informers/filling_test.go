package informers

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// storage is a Stored of logical clusters.
type storage struct {
	mu       sync.Mutex
	objects  map[logicalcluster.Name]*corev1alpha1.LogicalCluster
	revision uint64
	err      error
	reads    int
	advanced func()        // called by Advance
	hold     chan struct{} // closed when reads may return; nil if they need not wait
}

func (s *storage) Read(_ context.Context, key Key) (runtime.Object, error) {
	s.mu.Lock()
	s.reads++
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj, ok := s.objects[key.Cluster]; ok && s.err == nil && key.Name == "cluster" {
		return obj.DeepCopy(), nil
	}
	return nil, s.err
}

func (s *storage) Revision(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.err
}

func (s *storage) Progress(context.Context) error { return nil }

func (s *storage) Advance(context.Context) error {
	if s.advanced != nil {
		s.advanced()
	}
	return nil
}

func (s *storage) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// reading reports whether a look-up reads what is stored.
func (s *storage) reading(l Lister[*corev1alpha1.LogicalCluster]) bool {
	before := 0
	s.set(func() { before = s.reads })
	l.Has("a", "", "cluster")
	reads := false
	s.set(func() { reads = s.reads > before })
	return reads
}

func TestLookUpsReadWhatIsStoredUntilTheInformerIsFilled(t *testing.T) {
	source, mayList, lists := &server{}, make(chan struct{}), atomic.Int64{}
	source.has(cluster("a", "1"))
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			list, err := source.list(ctx, options)
			<-mayList // with what was stored at the start
			return list, err
		},
		WatchFuncWithContext: source.watch,
	}
	factory, resource := NewFactory(), corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	content := &storage{objects: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{"a": cluster("a", "1")}, revision: 12}
	factory.From(resource, lw)
	factory.ReadStored(resource, content)
	i, err := factory.For(Kind{
		Resource: resource, Example: &corev1alpha1.LogicalCluster{}, Packed: true,
		Transform: func() func(runtime.Object) {
			return func(obj runtime.Object) { obj.(*corev1alpha1.LogicalCluster).ManagedFields = nil }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	branch, end := i.Branch()
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx)
	defer func() { cancel(); factory.Wait() }()
	if err := factory.WaitForLookUps(t.Context()); err != nil {
		t.Fatal(err)
	}
	finds := func(when string, name logicalcluster.Name, version string) {
		t.Helper()
		for _, informer := range []*Informer{i, branch} {
			l := Lister[*corev1alpha1.LogicalCluster]{informer}
			got, err := l.Get(name, "", "cluster")
			found, ok := l.Find(name, "", "cluster")
			local, localErr := l.GetLocal(name, "", "cluster")
			anywhere, anywhereErr := l.GetAnywhere(name, "", "cluster")
			if version == "" {
				if err == nil || ok || localErr == nil || anywhereErr == nil || l.Has(name, "", "cluster") {
					t.Errorf("%s: %s is found", when, name)
				}
				continue
			}
			if err != nil || !ok || localErr != nil || anywhereErr != nil || !l.Has(name, "", "cluster") {
				t.Fatalf("%s: %s is not found: %v", when, name, err)
			}
			for _, lc := range []*corev1alpha1.LogicalCluster{got, found, local, anywhere} {
				if lc.ResourceVersion != version || lc.ManagedFields != nil {
					t.Errorf("%s: got version %s of %s with %v, want %s", when, lc.ResourceVersion, name, lc.ManagedFields, version)
				}
			}
		}
	}
	lister := Lister[*corev1alpha1.LogicalCluster]{i}
	finds("while it is not filled", "a", "1")
	finds("while it is not filled", "b", "")
	time.Sleep(50 * time.Millisecond)
	if n := lists.Load(); n > 0 {
		t.Errorf("%d lists before Fill", n)
	}
	factory.Fill()
	content.set(func() { content.objects["a"], content.objects["b"] = cluster("a", "11"), cluster("b", "12") })
	finds("after a change", "a", "11")
	finds("after a change", "b", "12")
	if got := (LookUps{i}).Version(); got != math.MaxUint64 || i.IsFilled() {
		t.Errorf("look-ups are complete up to %d, filled: %t", got, i.IsFilled())
	}

	content.set(func() { content.err = errors.New("etcd does not respond") })
	answered := make(chan bool, 1)
	go func() { answered <- lister.Has("a", "", "cluster") }()
	time.Sleep(3 * readPause)
	select {
	case found := <-answered:
		t.Errorf("found %t although it could not be read", found)
	default:
	}
	content.set(func() { content.err = nil })
	if !<-answered {
		t.Error("what could not be read is absent")
	}

	close(mayList)
	<-i.Synced()
	<-source.watched
	finds("before the events since the list have arrived", "a", "11")
	if i.IsFilled() || !content.reading(lister) {
		t.Error("look-ups go back to the list")
	}
	source.events.Modify(cluster("a", "11"))
	source.events.Add(cluster("b", "12"))
	ended, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if err := factory.WaitForSync(ended); err != nil || !i.IsFilled() {
		t.Fatalf("look-ups read what is stored after the events have arrived: %v", err)
	}
	finds("afterwards", "a", "11")
	finds("afterwards", "b", "12")
	if got := (LookUps{i}).Version(); got != 12 || content.reading(lister) {
		t.Errorf("look-ups are complete up to %d, want 12", got)
	}
}

// filledFrom returns a running informer that reads content until it is filled, and a function that stops it.
func filledFrom(t *testing.T, lw cache.ListerWatcher, content *storage) (*Informer, func()) {
	t.Helper()
	factory, resource := NewFactory(), corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	factory.From(resource, lw)
	factory.ReadStored(resource, content)
	i, err := factory.For(Kind{Resource: resource, Example: &corev1alpha1.LogicalCluster{}, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx)
	factory.Fill()
	return i, func() { cancel(); factory.Wait() }
}

// never is a source whose list does not end before its context.
var never = &cache.ListWatch{
	ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
}

func TestLookUpsEndWithTheServer(t *testing.T) {
	i, stop := filledFrom(t, never, &storage{err: errors.New("etcd has stopped")})
	answered := make(chan bool)
	go func() { answered <- Lister[*corev1alpha1.LogicalCluster]{i}.Has("a", "", "cluster") }()
	stop()
	if <-answered {
		t.Error("found an object that was never read")
	}
}

func TestLookUpsEndWithAServerThatStopsBeforeItsInformersRun(t *testing.T) {
	factory, content := NewFactory(), &storage{err: errors.New("etcd has stopped")}
	first, read := corev1alpha1.SchemeGroupVersion.WithResource("firsts"), corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	factory.From(first, never)
	factory.From(read, never)
	factory.ReadStored(read, content)
	if _, err := factory.For(Kind{Resource: first, Example: &corev1alpha1.LogicalCluster{}}); err != nil {
		t.Fatal(err)
	}
	i, err := factory.For(Kind{Resource: read, Example: &corev1alpha1.LogicalCluster{}, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx)
	cancel()
	factory.Wait()
	if (Lister[*corev1alpha1.LogicalCluster]{i}).Has("a", "", "cluster") {
		t.Error("found an object that was never read")
	}
	i.WaitForChanges(t.Context(), func() func() { return func() {} })
}

func TestReadsOfWhatIsStoredEndWithoutAnEvent(t *testing.T) {
	source := &server{}
	source.has(cluster("a", "1"))
	content := &storage{objects: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{"a": cluster("a", "1")}, revision: 12}
	content.advanced = func() { // only then is there an event that is later than the list
		<-source.watched
		source.events.Add(cluster("b", "13"))
	}
	i, stop := filledFrom(t, &cache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.watch}, content)
	defer stop()
	select {
	case <-i.Filled():
	case <-time.After(30 * time.Second):
		t.Fatal("the informer waits for an event that etcd does not send")
	}
}

// TestNoLookUpGoesBack holds a read that began before the end, while the storage changes.
func TestNoLookUpGoesBack(t *testing.T) {
	source := &server{}
	source.has(cluster("a", "1"))
	content := &storage{
		objects: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{"a": cluster("a", "1")}, revision: 1, hold: make(chan struct{}),
	}
	mayList := make(chan struct{})
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			<-mayList
			return source.list(ctx, options)
		},
		WatchFuncWithContext: source.watch,
	}
	i, stop := filledFrom(t, lw, content)
	defer stop()
	lister := Lister[*corev1alpha1.LogicalCluster]{i}
	found := make(chan string)
	go func() {
		lc, err := lister.Get("a", "", "cluster")
		if err != nil {
			found <- err.Error()
			return
		}
		found <- lc.ResourceVersion
	}()
	for reads := 0; reads == 0; time.Sleep(time.Millisecond) {
		content.set(func() { reads = content.reads })
	}
	close(mayList)
	<-source.watched
	time.Sleep(2 * progressPause) // the informer has revision 1, and the read has not returned
	select {
	case <-i.Filled():
		t.Fatal("the reads have ended before the last one has")
	default:
	}
	content.set(func() { content.objects["a"], content.revision = cluster("a", "11"), 11 })
	close(content.hold)
	if version := <-found; version != "11" {
		t.Fatalf("found %s", version)
	}
	again := make(chan string, 1)
	go func() {
		lc, err := lister.Get("a", "", "cluster")
		if err != nil {
			again <- err.Error()
			return
		}
		again <- lc.ResourceVersion
	}()
	source.events.Modify(cluster("a", "11"))
	<-i.Filled()
	if version := <-again; version != "11" {
		t.Errorf("a later look-up found %s", version)
	}
	if lc, err := lister.Get("a", "", "cluster"); err != nil || lc.ResourceVersion != "11" {
		t.Errorf("after the reads, a look-up found %v: %v", lc, err)
	}
}

// stops is the signal of a server that stops.
type stops chan struct{}

func (s stops) ShuttingDown() <-chan struct{} { return s }

func TestWaitsForChangesEnd(t *testing.T) {
	for _, end := range []string{"request", "server"} {
		i, stop := filledFrom(t, never, &storage{revision: 1})
		signal := stops(make(chan struct{}))
		ctx, cancel := context.WithCancel(request.WithServerShutdownSignal(t.Context(), signal))
		waited := make(chan struct{})
		var seats atomic.Int32 // given back
		stand := func() func() {
			seats.Add(1)
			return func() { seats.Add(-1) }
		}
		go func() { defer close(waited); i.WaitForChanges(ctx, stand) }()
		select {
		case <-waited:
			t.Error("it does not wait for an informer that is not filled")
		case <-time.After(50 * time.Millisecond):
		}
		if seats.Load() != 1 {
			t.Errorf("it waits with %d seats given back", seats.Load())
		}
		if end == "server" {
			close(signal)
		} else {
			cancel()
		}
		<-waited
		if seats.Load() != 0 {
			t.Error("it has not taken its seat again")
		}
		cancel()
		stop()
	}
}
