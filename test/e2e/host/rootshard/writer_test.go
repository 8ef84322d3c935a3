package rootshard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// writer creates and reads one object after the other, without a second try.
type writer struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu           sync.Mutex
	acknowledged []string
	failed       []error
	outage       time.Duration
	working      time.Time
}

func startWriting(t *testing.T, client kubernetes.Interface) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{cancel: cancel, done: make(chan struct{}), working: time.Now()}
	go func() {
		defer close(w.done)
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("written-%d", i)
			w.record(ctx, name, write(ctx, client, name))
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-w.done })
	return w
}

func write(ctx context.Context, client kubernetes.Interface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	configMaps := client.CoreV1().ConfigMaps("default")
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	if _, err := configMaps.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

func (w *writer) record(ctx context.Context, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.failed = append(w.failed, err)
		w.outage = max(w.outage, time.Since(w.working))
	default:
		w.acknowledged, w.working = append(w.acknowledged, name), time.Now()
	}
}

// since returns what has failed since the last call, and the longest time without a success among it.
func (w *writer) since() (outage time.Duration, failed []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	outage, failed = w.outage, w.failed
	w.outage, w.failed = 0, nil
	return outage, failed
}

// stop ends the writer, and looks for what was acknowledged.
func (w *writer) stop(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	w.cancel()
	<-w.done
	missing, err := lost(t.Context(), client, w.acknowledged)
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) > 0 || len(w.acknowledged) == 0 {
		t.Errorf("of %d acknowledged writes %d are lost: %v", len(w.acknowledged), len(missing), missing)
	}
	t.Logf("%d writes were acknowledged, and none is lost", len(w.acknowledged))
}
