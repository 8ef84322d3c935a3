package informers

import (
	"context"
	"testing"

	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// acknowledgements are of versions of clusters.
type acknowledgements map[logicalcluster.Name]uint64

func (a acknowledgements) Last(cluster logicalcluster.Name) uint64 { return a[cluster] }

func (a acknowledgements) Forget(cluster logicalcluster.Name, _ uint64) { delete(a, cluster) }

func TestCurrentWaitsForAcknowledgedChanges(t *testing.T) {
	source := &server{}
	source.has(cluster("a", "1"), cluster("b", "2"))
	lw := &cache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.watch}
	i := New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, nil)
	i.Acknowledge(acknowledgements{"a": 12, "b": 10, "c": 13, "d": 14})
	lister := Lister[*corev1alpha1.LogicalCluster]{i}
	lister.Current(t.Context(), "a") // does not wait before the first list
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-i.Synced()
	<-source.watched
	lister.Current(t.Context(), "b")
	lister.Current(t.Context(), "unknown")

	branch, end := i.Branch()
	defer end()
	for _, informer := range []*Informer{i, branch} {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		informer.Current(over, "d")
	}
	go func() {
		source.events.Modify(cluster("b", "11"))
		source.events.Modify(cluster("a", "12"))
		source.events.Add(cluster("c", "13"))
	}()
	lister.Current(t.Context(), "a")
	if got, err := lister.Get("a", "", "cluster"); err != nil || got.ResourceVersion != "12" {
		t.Errorf("got %v, %v, want what was acknowledged", got, err)
	}
	branch.Current(t.Context(), "c")
	if _, err := lister.Get("c", "", "cluster"); err != nil {
		t.Error(err)
	}
}

func TestAWaiterIsWokenByItsVersionOnly(t *testing.T) {
	var w versionWaiters
	early, forgetEarly := w.expect(5)
	late, forgetLate := w.expect(7)
	_, forgetOther := w.expect(9)
	defer forgetEarly()
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		version     uint64
		early, late bool
	}{{4, false, false}, {6, true, false}, {7, true, true}, {3, true, true}} {
		w.reached(step.version)
		if woken(early) != step.early || woken(late) != step.late {
			t.Errorf("after version %d: %t, %t", step.version, woken(early), woken(late))
		}
	}
	forgetLate()
	if len(w.all) != 1 || w.any.Load() != 1 {
		t.Errorf("%d waiters are left, counted %d, want the one of version 9", len(w.all), w.any.Load())
	}
	if forgetOther(); len(w.all) != 0 || w.any.Load() != 0 {
		t.Errorf("%d waiters are left, counted %d", len(w.all), w.any.Load())
	}
}
