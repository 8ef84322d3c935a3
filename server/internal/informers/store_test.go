package informers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func cluster(name, version string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster", ResourceVersion: version, Annotations: map[string]string{logicalcluster.AnnotationKey: name}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
}

// server lists its objects in pages of two, and has one watch.
type server struct {
	mu      sync.Mutex
	objects []*corev1alpha1.LogicalCluster
	events  *watch.FakeWatcher
	watched chan struct{}
}

func (s *server) has(objects ...*corev1alpha1.LogicalCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.events, s.watched = objects, watch.NewFake(), make(chan struct{}, 1)
}

func (s *server) list(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var from int
	if options.Continue != "" {
		if _, err := fmt.Sscan(options.Continue, &from); err != nil {
			return nil, err
		}
	}
	page := &corev1alpha1.LogicalClusterList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	for n := from; n < min(from+2, len(s.objects)); n++ {
		page.Items = append(page.Items, *s.objects[n].DeepCopy())
	}
	if from+2 < len(s.objects) {
		page.Continue = fmt.Sprint(from + 2)
	}
	return page, nil
}

func (s *server) watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched <- struct{}{}
	return s.events, nil
}

func TestAPackedInformerKeepsTheObjectsOfTheServer(t *testing.T) {
	source := &server{}
	source.has(cluster("a", "1"), cluster("b", "2"), cluster("c", "3"), cluster("d", "4"), cluster("e", "5"))
	lw := &cache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.watch}
	i, err := NewPacked(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw,
		func(obj runtime.Object) { obj.(*corev1alpha1.LogicalCluster).ManagedFields = nil })
	if err != nil {
		t.Fatal(err)
	}
	lister := Lister[*corev1alpha1.LogicalCluster]{i}
	told := make(chan string, 100)
	of := func(obj runtime.Object) string {
		if obj == nil {
			return "-"
		}
		lc := obj.(*corev1alpha1.LogicalCluster)
		if lc.ManagedFields != nil {
			t.Errorf("%v is not what is kept", lc)
		}
		return string(logicalcluster.Of(lc)) + lc.ResourceVersion
	}
	i.AddHandler(func(old, obj runtime.Object) { told <- of(old) + " " + of(obj) })
	expect := func(want ...string) {
		t.Helper()
		left := map[string]bool{}
		for _, w := range want {
			left[w] = true
		}
		for range want {
			select {
			case got := <-told:
				if !left[got] {
					t.Fatalf("got the event %s, want one of %v", got, want)
				}
				delete(left, got)
			case <-time.After(30 * time.Second):
				t.Fatalf("got no event of %v", left)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	expect("- a1", "- b2", "- c3", "- d4", "- e5")
	<-i.Synced()
	first, err := lister.Get("b", "", "cluster")
	if err != nil || of(first) != "b2" {
		t.Fatalf("got %v, %v", first, err)
	}
	if again, _ := lister.Get("b", "", "cluster"); again != first {
		t.Error("what is read often is unpacked for each reader")
	}

	<-source.watched
	changes := make(chan string, 100)
	branch, end := i.Branch()
	branch.AddHandlerForChanges(func(old, obj runtime.Object) { changes <- of(old) + " " + of(obj) })
	source.events.Modify(cluster("b", "11"))
	source.events.Delete(cluster("c", "12"))
	source.events.Add(cluster("f", "13"))
	expect("b2 b11", "c3 -", "- f13")
	for _, want := range []string{"b2 b11", "c3 -", "- f13"} {
		if got := <-changes; got != want {
			t.Errorf("a handler for changes got %s, want %s", got, want)
		}
	}
	end()
	if now, err := lister.Get("b", "", "cluster"); err != nil || of(now) != "b11" {
		t.Errorf("got %v, %v after a change", now, err)
	}
	if _, err := lister.Get("c", "", "cluster"); err == nil {
		t.Error("a deleted object is there")
	}

	broken := source.events
	source.has(cluster("b", "11"), cluster("d", "20"), cluster("f", "13"), cluster("g", "21"))
	broken.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
	expect("a1 -", "d4 d20", "e5 -", "- g21")
	late := make(chan string, 100)
	i.AddHandler(func(old, obj runtime.Object) { late <- of(old) + " " + of(obj) })
	if len(late) != 4 {
		t.Errorf("a late handler got %d objects, want 4", len(late))
	}
}

func TestObjectsThatCannotBePackedHaveNoPackedInformer(t *testing.T) {
	if _, err := NewPacked(corev1.SchemeGroupVersion.WithResource("pods"), &corev1.Pod{}, nil, nil); err == nil {
		t.Error("pods are packed")
	}
}

func TestAHandlerThatReceivesManyObjectsDelaysNoChanges(t *testing.T) {
	const objects = 3000
	source := &server{}
	for n := range objects {
		source.objects = append(source.objects, cluster(fmt.Sprint("c", n), "1"))
	}
	source.has(source.objects...)
	source.events = watch.NewFakeWithChanSize(objects+1, false)
	lw := &cache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.watch}
	i, err := NewPacked(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, func(runtime.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-i.Synced()

	known := map[string]string{}
	last := make(chan struct{})
	heard, during := 0, 0 // under the lock of the informer
	var told atomic.Bool
	i.AddHandler(func(old, obj runtime.Object) {
		version := func(obj runtime.Object) (string, string) {
			lc := obj.(*corev1alpha1.LogicalCluster)
			return string(logicalcluster.Of(lc)), lc.ResourceVersion
		}
		if old != nil {
			name, before := version(old)
			if known[name] != before {
				t.Errorf("%s was %q, the event has the old state %q", name, known[name], before)
			}
			delete(known, name)
		}
		if obj == nil {
			return
		}
		name, now := version(obj)
		if _, twice := known[name]; twice {
			t.Errorf("%s is new once more", name)
		}
		known[name] = now
		if now != "1" && !told.Load() {
			during++
		}
		if during == 0 {
			time.Sleep(300 * time.Microsecond) // a slow handler: who waits for the lock long enough gets it
		}
		if name == "last" {
			close(last)
		}
		if heard++; heard == 1 { // all of this happens while the handler receives the existing objects
			for n := range objects / 3 {
				source.events.Modify(cluster(fmt.Sprint("c", 3*n), "2"))
				source.events.Delete(cluster(fmt.Sprint("c", 3*n+1), "2"))
			}
			source.events.Add(cluster("last", "3"))
		}
	})
	told.Store(true)
	select {
	case <-last:
	case <-time.After(30 * time.Second):
		t.Fatal("the handler does not receive the last object")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if during == 0 {
		t.Error("changes waited for the handler")
	}
	for n := range objects {
		want := []string{"2", "", "1"}[n%3]
		if got := known[fmt.Sprint("c", n)]; got != want {
			t.Errorf("the handler believes that c%d is %q, want %q", n, got, want)
		}
	}
}

func TestAnObjectWithoutAClusterIsLeftOut(t *testing.T) {
	resource, example := corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}
	for _, packed := range []bool{false, true} {
		source := &server{}
		source.has(cluster("a", "1"), cluster("", "2"), cluster("c", "3"))
		lw := &cache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.watch}
		i := New(resource, example, lw, nil)
		if packed {
			var err error
			if i, err = NewPacked(resource, example, lw, func(runtime.Object) {}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); i.Run(ctx) }()
		told := make(chan runtime.Object, 100)
		<-i.Synced()
		i.AddHandler(func(_, obj runtime.Object) { told <- obj })
		<-source.watched
		source.events.Modify(cluster("", "4"))
		source.events.Delete(cluster("", "5"))
		source.events.Add(cluster("d", "6"))
		found := map[string]bool{}
		for range 3 {
			select {
			case obj := <-told:
				found[string(logicalcluster.Of(obj.(*corev1alpha1.LogicalCluster)))] = true
			case <-time.After(30 * time.Second):
				t.Fatalf("got only %v", found)
			}
		}
		if !found["a"] || !found["c"] || !found["d"] {
			t.Errorf("got %v", found)
		}
		cancel()
		<-ended
	}
}

func TestWrittenObjectsAreRememberedIfTheyAreSmall(t *testing.T) {
	i, err := NewPacked(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, nil,
		func(runtime.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	for size, remembered := range map[int]bool{10: true, mostRemembered + 1: false} {
		s, lc := i.store.(*packed), cluster("a", "1")
		lc.Annotations["note"] = strings.Repeat("x", size)
		key, err := storeKey(lc)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.set(key, lc); err != nil {
			t.Fatal(err)
		}
		got, ok := s.get(key)
		if !ok || (got == runtime.Object(lc)) != remembered {
			t.Errorf("%d bytes: found %t, remembered %t, want %t", size, ok, got == runtime.Object(lc), remembered)
		}
		if diff := cmp.Diff(runtime.Object(lc), got); diff != "" {
			t.Error(diff)
		}
	}
}
