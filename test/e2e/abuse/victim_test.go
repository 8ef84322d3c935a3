package abuse

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// pause is the time between two requests of the victim.
	pause = 5 * time.Millisecond
	// timeout is the timeout of the victim's requests: a slower response is a failure.
	timeout = 30 * time.Second
	// kept is the number of objects that the victim always has.
	kept = 20
)

// victim is a tenant with one client that sends few requests, and with a watch, like a controller.
type victim struct {
	*client
	created, seen atomic.Int64

	mu       sync.Mutex
	samples  []time.Duration
	failures []string
}

// newVictim creates the objects of a victim.
func newVictim(ctx context.Context, c *client) (*victim, error) {
	v := &victim{client: c}
	for i := range kept {
		if err := c.create(ctx, configMapPath, configMap(fmt.Sprintf("kept-%d", i), 100)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// work creates, reads, updates, lists and deletes objects in turn, until the context ends.
func (v *victim) work(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("one-%d", i)
		path := configMapPath + "/" + name
		if v.measure(ctx, http.StatusCreated, http.MethodPost, configMapPath, configMap(name, 100)) {
			v.created.Add(1)
		}
		v.measure(ctx, http.StatusOK, http.MethodGet, path, "")
		v.measure(ctx, http.StatusOK, http.MethodPut, path, configMap(name, 200))
		v.measure(ctx, http.StatusOK, http.MethodGet, configMapPath, "")
		v.measure(ctx, http.StatusOK, http.MethodDelete, path, "")
	}
}

func (v *victim) measure(ctx context.Context, want int, method, path, body string) bool {
	if ctx.Err() != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	began := time.Now()
	code, content, err := v.send(limited, method, path, body, nil)
	took := time.Since(began)
	cancel()
	if ctx.Err() != nil {
		return false
	}
	v.mu.Lock()
	v.samples = append(v.samples, took)
	if err != nil || code != want {
		v.failures = append(v.failures, fmt.Sprintf("%s %s: %d %v after %s: %.300s", method, path, code, err, took.Round(time.Millisecond), content))
	}
	v.mu.Unlock()
	waitFor(ctx, pause)
	return code == want
}

// watch opens a watch of the victim's objects. follow reads it until the context ends. A watch that ends before that is a failure.
func (v *victim) watch(ctx context.Context) (io.ReadCloser, error) {
	response, err := v.open(ctx, http.MethodGet, configMapPath+"?watch=true&timeoutSeconds=86400", "", nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("watching: %s", response.Status)
	}
	return response.Body, err
}

func (v *victim) follow(ctx context.Context, body io.ReadCloser) {
	defer body.Close()
	events := json.NewDecoder(bufio.NewReader(body))
	for {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := events.Decode(&event); err != nil {
			if ctx.Err() == nil {
				v.mu.Lock()
				v.failures = append(v.failures, fmt.Sprintf("the watch ended: %v", err))
				v.mu.Unlock()
			}
			return
		}
		var n int
		if _, err := fmt.Sscanf(event.Object.Metadata.Name, "one-%d", &n); err == nil && event.Type == "ADDED" {
			v.seen.Add(1)
		}
	}
}

// take returns the latencies and failures since its last call.
func (v *victim) take() ([]time.Duration, []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	samples, failures := v.samples, v.failures
	v.samples, v.failures = nil, nil
	return samples, failures
}

// checkWatch fails the test if the watch did not deliver all created objects.
func (v *victim) checkWatch(t *testing.T) {
	t.Helper()
	created := v.created.Load()
	if err := eventually(t.Context(), func() error {
		if seen := v.seen.Load(); seen < created {
			return fmt.Errorf("got %d of %d objects", seen, created)
		}
		return nil
	}); err != nil {
		t.Errorf("the watch of the victim: %v", err)
	}
}
