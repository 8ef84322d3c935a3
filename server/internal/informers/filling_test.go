package informers

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
}

func (s *storage) Read(_ context.Context, key Key) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
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
	source, mayList := &server{}, make(chan struct{})
	source.has(cluster("a", "1"))
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
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
	if err := factory.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-source.watched
	finds("before the events since the list have arrived", "a", "11")
	if i.IsFilled() || !content.reading(lister) {
		t.Error("look-ups go back to the list")
	}
	source.events.Modify(cluster("a", "11"))
	source.events.Add(cluster("b", "12"))
	for deadline := time.Now().Add(30 * time.Second); !i.IsFilled(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("look-ups read what is stored after the events have arrived")
		}
	}
	finds("afterwards", "a", "11")
	finds("afterwards", "b", "12")
	if got := (LookUps{i}).Version(); got != 12 || content.reading(lister) {
		t.Errorf("look-ups are complete up to %d, want 12", got)
	}
}

func TestLookUpsEndWithTheServer(t *testing.T) {
	content := &storage{err: errors.New("etcd has stopped")}
	i, err := NewPacked(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, func(runtime.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	i.ReadStored(content)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	answered := make(chan bool)
	go func() { answered <- Lister[*corev1alpha1.LogicalCluster]{i}.Has("a", "", "cluster") }()
	cancel()
	<-ended
	if <-answered {
		t.Error("found an object that was never read")
	}
}
