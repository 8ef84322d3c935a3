package freshness

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
)

// etcd is a source whose watches say how far they are on request, unless it is cut off or the watches are. Those that were
// resumed say it once there is a newer revision.
type etcd struct {
	revision     atomic.Uint64
	version      atomic.Uint64
	away, broken atomic.Bool
	resumed      atomic.Uint64 // the first revision of watches; zero if they have begun earlier
	advanced     atomic.Int32
}

func (e *etcd) Revision(context.Context) (uint64, error) {
	if e.away.Load() {
		return 0, errors.New("etcd does not respond")
	}
	return e.revision.Load(), nil
}

func (e *etcd) Progress(context.Context) error {
	if !e.away.Load() && !e.broken.Load() && e.resumed.Load() <= e.revision.Load() {
		e.version.Store(e.revision.Load())
	}
	return nil
}

func (e *etcd) Advance(context.Context) error {
	e.advanced.Add(1)
	e.revision.Add(1)
	return nil
}

func (e *etcd) Version() uint64 { return e.version.Load() }

// running returns a state that is current and compared with an etcd, in a test with a clock of its own.
func running(t *testing.T) (*etcd, *State) {
	e, s := &etcd{}, &State{Limit: 10 * time.Second}
	e.revision.Store(7)
	s.Filled()
	go s.Run(t.Context(), e, []Informer{e})
	time.Sleep(time.Minute)
	if err := s.Stale(); err != nil {
		t.Fatalf("with etcd: %v", err)
	}
	return e, s
}

func TestStaleInformersServeNoRequests(t *testing.T) {
	for name, cut := range map[string]func(e *etcd, yes bool){
		"etcd cannot be reached":    func(e *etcd, yes bool) { e.away.Store(yes) },
		"a watch tells nothing new": func(e *etcd, yes bool) { e.broken.Store(yes); e.revision.Add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s := running(t)
				cut(e, true)
				time.Sleep(8 * time.Second)
				if err := s.Stale(); err != nil {
					t.Errorf("after 8 s: %v", err)
				}
				time.Sleep(3 * time.Second)
				if err := s.Stale(); err == nil {
					t.Error("after 11 s stale informers serve requests")
				}
				cut(e, false)
				time.Sleep(3 * time.Second)
				if err := s.Stale(); err != nil {
					t.Errorf("with etcd again: %v", err)
				}
			})
		})
	}
}

// While requests are refused nothing is written, so that no event tells the watches how far they are.
func TestResumedWatchesDoNotWaitForARefusedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := running(t)
		e.away.Store(true)
		time.Sleep(time.Minute)
		e.version.Store(0)
		e.resumed.Store(8)
		e.away.Store(false)
		time.Sleep(5 * time.Second)
		if err := s.Stale(); err != nil || e.advanced.Load() != 1 {
			t.Errorf("5 s after etcd came back, with %d revisions of our own: %v", e.advanced.Load(), err)
		}
		time.Sleep(time.Minute)
		if n := e.advanced.Load(); n != 1 {
			t.Errorf("%d revisions are written although the watches report progress", n)
		}
	})
}

func TestRequestsThatAreRefusedWhileTheInformersAreStale(t *testing.T) {
	lost, old := &State{}, &State{Limit: time.Nanosecond}
	lost.Filled()
	lost.Lose(errors.New("etcd was restored"))
	old.Filled()
	time.Sleep(time.Microsecond)
	fresh := &State{}
	fresh.Filled()
	for name, c := range map[string]struct {
		state  *State
		served string // of the paths below
	}{
		"while the server starts": {&State{}, "/readyz /livez/etcd own"},
		"with current informers":  {fresh, "/clusters/root/api /readyz /livez/etcd /metrics /version own"},
		"with stale informers":    {old, "/readyz /livez/etcd /metrics own"},
		"after etcd was restored": {lost, "/readyz /livez/etcd /metrics own"},
	} {
		t.Run(name, func(t *testing.T) {
			own := func(r *http.Request) bool { return r.URL.Path == "own" }
			h := c.state.WithRefusal(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), own, scheme.Codecs.WithoutConversion())
			var served []string
			for _, path := range []string{"/clusters/root/api", "/readyz", "/livez/etcd", "/readyzx", "/metrics", "/version", "own"} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.URL.Path = path
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code == http.StatusOK {
					served = append(served, path)
				} else if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
					t.Errorf("%s: %d, Retry-After %q", path, w.Code, w.Header().Get("Retry-After"))
				}
			}
			want := c.served
			if c.state == fresh {
				want = strings.Replace(want, "/livez/etcd", "/livez/etcd /readyzx", 1)
			}
			if got := strings.Join(served, " "); got != want {
				t.Errorf("served are %s, want %s", got, want)
			}
		})
	}
}
