package property

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// crossing is a proxy that sometimes makes the server behind it mix up clusters.
type crossing struct {
	proxy   *httputil.ReverseProxy
	spoils  func(*http.Request) bool // selects the requests that can fail
	spoil   func(r *http.Request, other *tenant)
	every   int64
	matches atomic.Int64
	spoiled atomic.Int64
	fleet   atomic.Pointer[fleet] // nil before faults start
}

func (x *crossing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := x.fleet.Load(); f != nil && x.spoils(r) && x.matches.Add(1)%x.every == 0 {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/clusters/"), "/")
		for i, t := range f.tenants {
			if t.name == name {
				x.spoil(r, f.tenants[(i+1)%len(f.tenants)])
				x.spoiled.Add(1)
				break
			}
		}
	}
	x.proxy.ServeHTTP(w, r)
}

// divert serves a request from another cluster after it was authorized in its own.
func divert(r *http.Request, other *tenant) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/clusters/"), "/")
	r.URL.Path = strings.Replace(r.URL.Path, name, other.name, 1)
	promote(r, other)
}

// promote treats a user as an administrator.
func promote(r *http.Request, _ *tenant) { r.Header.Set("Authorization", "Bearer "+masters.token) }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

func isAnonymous(r *http.Request) bool { return r.Header.Get("Authorization") == "" }

// of selects requests that are not refused before they reach the fault.
func of(choose func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool { return !isAnonymous(r) && choose(r) }
}

// newCrossing returns a proxy for the server, and its URL.
func newCrossing(t *testing.T, x *crossing) string {
	t.Helper()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := newClient(server.Config(kcptest.Anonymous), server.URL, &secrets{})
	if err != nil {
		t.Fatal(err)
	}
	x.proxy = &httputil.ReverseProxy{Transport: direct.http.Transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		// The body can be sent again, for the case that the server closes a connection because of another request.
		body, _ := io.ReadAll(r.In.Body)
		r.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Out.Body, _ = r.Out.GetBody()
	}}
	through := httptest.NewServer(x)
	t.Cleanup(func() {
		through.CloseClientConnections()
		through.Close()
		direct.http.CloseIdleConnections()
	})
	return through.URL
}

func TestChecksFindServerThatMixesUpClusters(t *testing.T) {
	method := func(all ...string) func(*http.Request) bool {
		return of(func(r *http.Request) bool {
			return !isWatch(r) && contains(all, r.Method) && !strings.Contains(r.URL.Path, "review")
		})
	}
	path := func(part string) func(*http.Request) bool {
		return of(func(r *http.Request) bool { return strings.Contains(r.URL.Path, part) })
	}
	query := func(name string) func(*http.Request) bool {
		return of(func(r *http.Request) bool { return r.URL.Query().Get(name) != "" && r.URL.Query().Get("dryRun") == "" })
	}
	for _, fault := range []struct {
		name   string
		every  int64 // 0: no faults
		spoils func(*http.Request) bool
		spoil  func(*http.Request, *tenant)
	}{
		{"none", 0, nil, nil},
		{"one in 50 reads", 50, method(http.MethodGet), divert},
		{"one in 50 creations", 50, method(http.MethodPost), divert},
		{"one in 50 changes", 50, method(http.MethodPut, http.MethodPatch), divert},
		{"one in 10 deletions", 10, method(http.MethodDelete), divert},
		{"one in 10 watches", 10, of(isWatch), divert},
		{"continued lists", 1, query("continue"), divert},
		{"one in 10 anonymous requests", 10, isAnonymous, promote},
		{"reviews of tokens", 1, path("tokenreviews"), divert},
		{"descriptions of schemas", 1, path("/openapi/v3/"), divert},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			x := &crossing{every: fault.every, spoils: fault.spoils, spoil: fault.spoil}
			f := newFleet(t, 5, 3, seed(t), newCrossing(t, x))
			f.patience = 5 * time.Second
			if fault.every > 0 {
				x.fleet.Store(f)
			}
			err := f.work(t.Context(), 1500)
			for err == nil && fault.every > 0 && x.spoiled.Load() == 0 { // no such request was sent
				err = f.work(t.Context(), 500)
			}
			if err == nil {
				err = f.finish(t.Context())
			}
			for _, w := range f.watches {
				w.stream.close()
			}
			if spoiled := x.spoiled.Load(); (spoiled > 0) != (fault.every > 0) || (err != nil) != (spoiled > 0) {
				t.Fatalf("%d of %d requests were faulty, and the check found: %v", spoiled, x.matches.Load(), err)
			}
			t.Logf("%d requests were faulty; found: %.300v", x.spoiled.Load(), err)
		})
	}
}
