package informers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// stored are the resource versions of a cluster's objects, by name, and the one of now.
type stored struct {
	mu       sync.Mutex
	versions map[string]uint64
	now      uint64
}

func (s *stored) set(now uint64, versions map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions, s.now = versions, now
}

func (s *stored) read(context.Context) (map[string]uint64, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions, s.now, nil
}

func named(name, of, version string) *corev1alpha1.LogicalCluster {
	lc := cluster(of, version)
	lc.Name = name
	return lc
}

func TestAwaitReturnsAfterStoredObjectsWereHandled(t *testing.T) {
	events := watch.NewRaceFreeFake()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1alpha1.LogicalClusterList{ListMeta: metav1.ListMeta{ResourceVersion: "3"},
				Items: []corev1alpha1.LogicalCluster{*named("old", "ours", "1"), *named("theirs", "other", "2")}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	l := Lister[*corev1alpha1.LogicalCluster]{New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, nil)}
	var mu sync.Mutex
	told := map[string]string{}
	l.AddHandler(func(old, obj runtime.Object) {
		time.Sleep(10 * time.Millisecond) // the store has it, the handler does not
		mu.Lock()
		defer mu.Unlock()
		if obj == nil {
			delete(told, old.(*corev1alpha1.LogicalCluster).Name)
			return
		}
		told[obj.(*corev1alpha1.LogicalCluster).Name] = obj.(*corev1alpha1.LogicalCluster).ResourceVersion
	})
	go l.Run(t.Context())
	<-l.Synced()
	s := &stored{}
	await := func(of logicalcluster.Name, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return l.Await(ctx, of, s.read)
	}
	for _, step := range []struct {
		what  string
		now   uint64
		is    map[string]uint64
		event func()
		want  string
	}{
		{"nothing is new", 5, map[string]uint64{"old": 1}, func() {}, "map[old:1 theirs:2]"},
		{"one is created", 6, map[string]uint64{"old": 1, "new": 6}, func() { events.Add(named("new", "ours", "6")) }, "map[new:6 old:1 theirs:2]"},
		{"one is changed", 7, map[string]uint64{"old": 7, "new": 6}, func() { events.Modify(named("old", "ours", "7")) }, "map[new:6 old:7 theirs:2]"},
		{"one is deleted", 8, map[string]uint64{"new": 6}, func() { events.Delete(named("old", "ours", "8")) }, "map[new:6 theirs:2]"},
		{"more is known than was stored", 6, map[string]uint64{}, func() { events.Modify(named("new", "ours", "9")) }, "map[new:9 theirs:2]"},
	} {
		s.set(step.now, step.is)
		if step.what != "nothing is new" && step.now > 6 || step.what == "one is created" {
			if await("ours", 50*time.Millisecond) == nil {
				t.Errorf("%s: Await does not wait", step.what)
			}
		}
		step.event()
		if err := await("ours", 30*time.Second); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		mu.Lock()
		if got := fmt.Sprint(told); got != step.want {
			t.Errorf("%s: the handler knows %s, want %s", step.what, got, step.want)
		}
		mu.Unlock()
	}
	// What was to come, and is gone, is not waited for.
	s.set(20, map[string]uint64{"new": 9, "gone": 20})
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.set(21, map[string]uint64{"new": 9})
	}()
	if err := await("ours", 30*time.Second); err != nil {
		t.Error(err)
	}
}
