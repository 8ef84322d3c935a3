package defaultcontent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func namespaceIn(cluster string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "default", Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}}
}

func TestAWaitEndsWhenTheLastNamespaceOfItsClusterArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a arrivals
		var known, asked atomic.Int32
		ended := make(chan error, 1)
		go func() {
			ended <- a.await(t.Context(), "ours", func(logicalcluster.Name) bool {
				all := known.Load() == 2
				asked.Add(1)
				return all
			})
		}()
		synctest.Wait() // until it waits
		known.Store(2)
		before := asked.Load()
		a.changed(nil, namespaceIn("others"))
		a.changed(namespaceIn("ours"), nil)
		synctest.Wait()
		if now := asked.Load(); now != before {
			t.Errorf("asked %d times for other changes", now-before)
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended without a change of its cluster: %v", err)
		default:
		}
		a.changed(nil, namespaceIn("ours"))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(a.waiting) != 0 {
			t.Errorf("%d entries are left", len(a.waiting))
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	var a arrivals
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.await(ctx, "ours", func(logicalcluster.Name) bool { return false })
	if !errors.Is(err, context.Canceled) || len(a.waiting) != 0 {
		t.Errorf("got %v, %d entries are left", err, len(a.waiting))
	}
	if err := a.await(ctx, "ours", func(logicalcluster.Name) bool { return true }); err != nil {
		t.Errorf("of what has arrived: %v", err)
	}
}
