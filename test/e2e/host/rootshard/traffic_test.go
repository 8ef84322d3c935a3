package rootshard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
)

// limit is the maximum time between two successful writes, if writes fail in between.
const limit = 10 * time.Second

// series is a series of sequential requests.
type series struct {
	working   time.Time     // time of the last success
	longest   time.Duration // longest time without a success
	outage    time.Duration // longest time without a success during which a request failed
	failing   bool          // since working
	succeeded int
	failed    []error
}

func (s *series) record(err error) {
	now := time.Now()
	s.longest = max(s.longest, now.Sub(s.working))
	if s.failing = s.failing || err != nil; s.failing {
		s.outage = max(s.outage, now.Sub(s.working))
	}
	if err != nil {
		s.failed = append(s.failed, err)
		return
	}
	s.working, s.failing = now, false
	s.succeeded++
}

// take returns what was recorded since the last call.
func (s *series) take() series {
	taken := *s
	s.longest, s.outage, s.succeeded, s.failed = 0, 0, 0, nil
	return taken
}

// traffic creates objects one after another, and continuously reads the last acknowledged one; without retries.
type traffic struct {
	client kubernetes.Interface
	stop   func()

	mu            sync.Mutex
	writes, reads series
	acknowledged  []string
}

func startTraffic(t *testing.T, client kubernetes.Interface) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &traffic{client: client, writes: series{working: time.Now()}, reads: series{working: time.Now()}}
	if _, err := f.write(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, do := range []func(context.Context) (*series, error){f.write, f.read} {
		running.Go(func() {
			for ctx.Err() == nil {
				series, err := do(ctx)
				f.mu.Lock()
				if ctx.Err() == nil {
					series.record(err)
				}
				f.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	f.stop = func() { cancel(); running.Wait() }
	t.Cleanup(f.stop)
	return f
}

func (f *traffic) write(ctx context.Context) (*series, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	created, err := f.client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	if err == nil {
		f.mu.Lock()
		f.acknowledged = append(f.acknowledged, created.Name)
		f.mu.Unlock()
	}
	return &f.writes, err
}

func (f *traffic) read(ctx context.Context) (*series, error) {
	f.mu.Lock()
	name := f.acknowledged[len(f.acknowledged)-1]
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := f.client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	return &f.reads, err
}

// take waits until requests succeed again, and returns what was recorded since the last call.
func (f *traffic) take(t *testing.T) (writes, reads series) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		if f.writes.working.After(begun) && f.reads.working.After(begun) {
			defer f.mu.Unlock()
			return f.writes.take(), f.reads.take()
		}
		failed := errors.Join(append(f.writes.failed, f.reads.failed...)...)
		f.mu.Unlock()
		if time.Since(begun) > time.Minute {
			t.Fatalf("reads and writes no longer succeed: %.2000v", failed)
		}
	}
}

// lost returns the names of acknowledged objects that do not exist.
func (f *traffic) lost(t *testing.T) []string {
	t.Helper()
	f.mu.Lock()
	acknowledged := sets.New(f.acknowledged...)
	f.mu.Unlock()
	list, err := f.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, configMap := range list.Items {
		acknowledged.Delete(configMap.Name)
	}
	return sets.List(acknowledged)
}

// disturbance is an event during reads and writes of kcp.
type disturbance struct {
	name string
	by   func()
}

// disturbed runs disturbances in turn. The test fails if writes are lost, or fail for longer than the limit.
func (n *installed) disturbed(t *testing.T, client kubernetes.Interface, disturbances ...disturbance) {
	t.Helper()
	n.during(t, client, disturbances, func(writes, _ series) error {
		if writes.outage > limit {
			return fmt.Errorf("writes failed for %v: %w", writes.outage, writes.failed[0])
		}
		return nil
	})
}

// undisturbed runs disturbances in turn. The test fails if writes are lost, or if any write or read fails.
func (n *installed) undisturbed(t *testing.T, client kubernetes.Interface, disturbances ...disturbance) {
	t.Helper()
	n.during(t, client, disturbances, func(writes, reads series) error {
		return errors.Join(append(writes.failed, reads.failed...)...)
	})
}

func (n *installed) during(t *testing.T, client kubernetes.Interface, disturbances []disturbance, check func(writes, reads series) error) {
	t.Helper()
	f := startTraffic(t, client)
	defer f.stop()
	f.take(t)
	for _, d := range disturbances {
		d.by()
		writes, reads := f.take(t)
		lost := f.lost(t)
		// This is a row of the table in docs/operations.md.
		t.Logf("| %s | %.1f s | %.1f s | %d | %d | %d |", d.name, writes.longest.Seconds(), reads.longest.Seconds(),
			writes.succeeded, len(lost), len(writes.failed)+len(reads.failed))
		if len(lost) > 0 {
			t.Errorf("%s: writes are lost: %v", d.name, lost)
		}
		if err := check(writes, reads); err != nil {
			t.Errorf("%s: %.2000v", d.name, err)
		}
	}
}
