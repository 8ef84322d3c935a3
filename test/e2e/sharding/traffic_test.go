package sharding

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// traffic are continuous writes and reads of one user in one workspace. A wrong response fails the test at once: a refusal, the absence of an
// object that was acknowledged, or another content. Any other failure counts as an interruption, of which the test decides.
type traffic struct {
	t      *testing.T
	client kubernetes.Interface
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu           sync.Mutex
	acknowledged map[string]string // name → UID
	lastSuccess  time.Time
	longestGap   time.Duration
	// took are the durations of the steps that have succeeded, each of two requests.
	took     []time.Duration
	failures []error
}

// pause is the time between two writes: many more than one in the time that a process takes to stop.
const pause = 5 * time.Millisecond

// attempt limits one request, so that a request that hangs shows in the gap and does not end the test.
const attempt = 10 * time.Second

// begin starts traffic, and returns after the first write.
func begin(t *testing.T, cluster *kcptest.Cluster, user kcptest.User) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &traffic{t: t, client: cluster.Kube(t, user), stop: stop, acknowledged: map[string]string{}, lastSuccess: time.Now()}
	t.Cleanup(r.end)
	first := make(chan struct{})
	r.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			r.record(r.writeAndRead(ctx, fmt.Sprintf("traffic-%d", n)), time.Since(began))
			if n == 0 {
				close(first)
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	<-first
	return r
}

// writeAndRead creates an object, and reads it.
func (r *traffic) writeAndRead(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	objects := r.client.CoreV1().ConfigMaps("default")
	written, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	r.mu.Lock()
	r.acknowledged[name] = string(written.UID)
	r.mu.Unlock()
	read, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err == nil && read.UID != written.UID {
		r.t.Errorf("%s was acknowledged with UID %s, and is read with UID %s", name, written.UID, read.UID)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// record records the result of one step.
func (r *traffic) record(err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if err == nil {
		r.longestGap = max(r.longestGap, now.Sub(r.lastSuccess))
		r.lastSuccess, r.took = now, append(r.took, took)
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	r.failures = append(r.failures, err)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if code := status.Status().Code; code < http.StatusInternalServerError && code != http.StatusTooManyRequests {
			r.t.Errorf("a request was answered %d, which clients do not repeat: %v", code, err)
		}
	}
}

// median returns the median duration of the next n steps.
func (r *traffic) median(n int) time.Duration {
	r.t.Helper()
	r.mu.Lock()
	r.took = nil
	r.mu.Unlock()
	var next []time.Duration
	kcptest.Eventually(r.t, "reads and writes succeed", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if next = slices.Clone(r.took); len(next) < n {
			return fmt.Errorf("%d of %d have succeeded; %d failures", len(next), n, len(r.failures))
		}
		return nil
	})
	return middle(next)
}

// middle returns the median of durations.
func middle(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// proceed returns when the traffic has succeeded once more.
func (r *traffic) proceed() {
	r.t.Helper()
	began := time.Now()
	kcptest.Eventually(r.t, "reads and writes succeed", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.lastSuccess.After(began) {
			return fmt.Errorf("the last success was before; %d failures: %v", len(r.failures), r.failures[max(0, len(r.failures)-3):])
		}
		return nil
	})
}

func (r *traffic) end() {
	r.stop()
	r.done.Wait()
}

// finish ends the traffic, checks that each acknowledged object exists, and returns the longest time without a success, and the failures.
func (r *traffic) finish() (longestGap time.Duration, failures []error) {
	r.t.Helper()
	r.proceed()
	r.end()
	list, err := r.client.CoreV1().ConfigMaps("default").List(kcptest.Context(r.t), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	exists := map[string]string{}
	for _, object := range list.Items {
		exists[object.Name] = string(object.UID)
	}
	for name, uid := range r.acknowledged {
		if exists[name] != uid {
			r.t.Errorf("%s was acknowledged with UID %s, and the list has %q", name, uid, exists[name])
		}
	}
	return r.longestGap, r.failures
}

// undisturbed ends the traffic like finish, and fails the test if any request failed.
func (r *traffic) undisturbed(row string) {
	r.t.Helper()
	gap, failures := r.finish()
	r.t.Logf("%s: %d objects written, longest gap %s, median of a write and a read %s", row, len(r.acknowledged), gap.Round(time.Millisecond),
		middle(r.took).Round(10*time.Microsecond))
	if len(failures) > 0 {
		r.t.Errorf("%s: %d requests failed, the first: %v", row, len(failures), failures[0])
	}
}
