package hosttest

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

// Series is a series of sequential requests.
type Series struct {
	working   time.Time     // time of the last success
	longest   time.Duration // longest time without a success
	outage    time.Duration // longest time without a success during which a request failed
	failing   bool          // since working
	succeeded int
	failed    []error
}

func (s *Series) record(err error) {
	now := time.Now()
	s.longest = max(s.longest, now.Sub(s.working))
	if s.failing = s.failing || err != nil; s.failing {
		s.outage = max(s.outage, now.Sub(s.working))
	}
	if err != nil {
		s.failed = append(s.failed, fmt.Errorf("at %s, %.1f s after the last success: %w",
			now.UTC().Format(time.TimeOnly), now.Sub(s.working).Seconds(), err))
		return
	}
	s.working, s.failing = now, false
	s.succeeded++
}

// take returns what was recorded since the last call.
func (s *Series) take() Series {
	taken := *s
	s.longest, s.outage, s.succeeded, s.failed = 0, 0, 0, nil
	return taken
}

// Traffic creates objects one after another, and continuously reads the last acknowledged one; without retries.
type Traffic struct {
	Client kubernetes.Interface
	Stop   func()

	mu            sync.Mutex
	writes, reads Series
	Acknowledged  []string
}

// StartTraffic writes and reads with a client, until it is stopped or the test ends.
func StartTraffic(t *testing.T, client kubernetes.Interface) *Traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &Traffic{Client: client, writes: Series{working: time.Now()}, reads: Series{working: time.Now()}}
	if _, err := f.write(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, do := range []func(context.Context) (*Series, error){f.write, f.read} {
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
	f.Stop = func() { cancel(); running.Wait() }
	t.Cleanup(f.Stop)
	return f
}

// Write creates an object, and remembers it if that is acknowledged.
func (f *Traffic) Write(ctx context.Context) error {
	_, err := f.write(ctx)
	return err
}

func (f *Traffic) write(ctx context.Context) (*Series, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	created, err := f.Client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	if err == nil {
		f.mu.Lock()
		f.Acknowledged = append(f.Acknowledged, created.Name)
		f.mu.Unlock()
	}
	return &f.writes, err
}

func (f *Traffic) read(ctx context.Context) (*Series, error) {
	f.mu.Lock()
	name := f.Acknowledged[len(f.Acknowledged)-1]
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := f.Client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	return &f.reads, err
}

// Take waits until requests succeed again, and returns what was recorded since the last call.
func (f *Traffic) Take(t *testing.T) (writes, reads Series) {
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

// Lost returns the names of acknowledged objects that do not exist.
func (f *Traffic) Lost(t *testing.T) []string {
	t.Helper()
	f.mu.Lock()
	acknowledged := sets.New(f.Acknowledged...)
	f.mu.Unlock()
	list, err := f.Client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, configMap := range list.Items {
		acknowledged.Delete(configMap.Name)
	}
	return sets.List(acknowledged)
}

// Disturbance is an event during reads and writes of kcp.
type Disturbance struct {
	Name string
	By   func()
}

// Check says whether the requests during a disturbance went as they should.
type Check func(writes, reads Series) error

// NoneFails is true if no write or read fails.
func NoneFails(writes, reads Series) error {
	return errors.Join(append(writes.failed, reads.failed...)...)
}

// ShortlyFails is true if writes fail for no longer than the limit.
func ShortlyFails(writes, _ Series) error {
	if writes.outage > limit {
		return fmt.Errorf("writes failed for %v: %w", writes.outage, writes.failed[0])
	}
	return nil
}

// NothingIsLost is always true: requests may fail for as long as they succeed again.
func NothingIsLost(_, _ Series) error { return nil }

// User reads and writes during disturbances.
type User struct {
	Name   string // empty if there is one only
	Client kubernetes.Interface
	Check  Check
}

// Disturbed runs disturbances in turn. The test fails if writes are lost, or fail for longer than the limit.
func (n *Installation) Disturbed(t *testing.T, client kubernetes.Interface, disturbances ...Disturbance) {
	t.Helper()
	During(t, []User{{Client: client, Check: ShortlyFails}}, disturbances...)
}

// Undisturbed runs disturbances in turn. The test fails if writes are lost, or if any write or read fails.
func (n *Installation) Undisturbed(t *testing.T, client kubernetes.Interface, disturbances ...Disturbance) {
	t.Helper()
	During(t, []User{{Client: client, Check: NoneFails}}, disturbances...)
}

// During runs disturbances in turn. The test fails if acknowledged writes of a user are lost, or if the check of a user fails.
func During(t *testing.T, users []User, disturbances ...Disturbance) {
	t.Helper()
	all := make([]*Traffic, len(users))
	for i, user := range users {
		all[i] = StartTraffic(t, user.Client)
		defer all[i].Stop()
	}
	for _, f := range all {
		f.Take(t)
	}
	for _, d := range disturbances {
		d.By()
		for i, user := range users {
			name := d.Name
			if user.Name != "" {
				name += ": " + user.Name
			}
			all[i].judge(t, name, user.Check)
		}
	}
}

// judge prints what was recorded since the last call, and fails the test if it should not have happened.
func (f *Traffic) judge(t *testing.T, name string, check Check) {
	t.Helper()
	writes, reads := f.Take(t)
	lost := f.Lost(t)
	// This is a row of the table in docs/operations.md.
	t.Logf("| %s | %.1f s | %.1f s | %d | %d | %d |", name, writes.longest.Seconds(), reads.longest.Seconds(),
		writes.succeeded, len(lost), len(writes.failed)+len(reads.failed))
	if len(lost) > 0 {
		t.Errorf("%s: writes are lost: %v", name, lost)
	}
	if err := check(writes, reads); err != nil {
		t.Errorf("%s: %.2000v", name, err)
	}
}
