package cacheserver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"golang.org/x/sync/singleflight"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// maxKept is the memory of the pages that are kept, and pageAge how long one is kept.
	maxKept, pageAge = 64 << 20, time.Minute
	// firstAge is how old the first page of a list of any version may be.
	firstAge = 5 * time.Second
	// pageTimeout is how long reading a page may take.
	pageTimeout = time.Minute
)

// pages keeps encoded pages of lists over all shards. All shards read the same when they start, so a thousand of them that start at once
// cost one read of etcd, one encoding and one compression.
//
// Invariants:
//   - Only what every reader may read is kept: lists over all shards and all logical clusters.
//   - A page after a continue token is one of a revision, which does not change. A first page is kept for clients that accept any version.
//   - The pages have maxKept bytes at most. A page is read once, however many clients wait for it.
type pages struct {
	clock clock.PassiveClock
	reads singleflight.Group

	mu    sync.Mutex
	kept  map[string]*page
	order []string // of the keys, the oldest first
	bytes int
}

// page is a response. It is not changed after it is complete.
type page struct {
	code   int
	header http.Header
	body   bytes.Buffer
	read   time.Time
	first  bool
}

func newPages(c clock.PassiveClock) *pages {
	return &pages{clock: c, kept: map[string]*page{}}
}

// keyOf returns the key of the page that a list requests, and false if it is not to be kept.
func keyOf(r *http.Request) (key string, first, ok bool) {
	query := r.URL.Query()
	for name, values := range query {
		switch name {
		case "limit", "continue", "resourceVersion":
			ok = len(values) == 1
		default:
			ok = false
		}
		if !ok {
			return "", false, false
		}
	}
	first = query.Get("continue") == ""
	if first && query.Get("resourceVersion") != "0" {
		return "", false, false
	}
	parts := []string{r.URL.Path, query.Encode(), r.Header.Get("Accept"), r.Header.Get("Accept-Encoding")}
	return strings.Join(parts, "\n"), first, true
}

// serve writes the page that a list over all shards requests. next reads it.
func (p *pages) serve(w http.ResponseWriter, r *http.Request, next http.Handler) error {
	key, first, ok := keyOf(r)
	if !ok {
		next.ServeHTTP(w, r)
		return nil
	}
	found := p.get(key)
	if found == nil {
		select {
		case result := <-p.reads.DoChan(key, func() (any, error) { return p.read(r, key, first, next) }):
			if result.Err != nil {
				return result.Err
			}
			found = result.Val.(*page)
		case <-r.Context().Done():
			return nil
		}
	}
	maps.Copy(w.Header(), found.header)
	w.WriteHeader(found.code)
	_, _ = w.Write(found.body.Bytes()) // the client is gone
	return nil
}

// read reads a page for all clients that wait for it, so the end of the first one's request does not end it.
func (p *pages) read(r *http.Request, key string, first bool, next http.Handler) (out *page, err error) {
	defer func() {
		if failure := recover(); failure != nil {
			klog.ErrorS(
				nil,
				"Serving a request panicked",
				decisionlog.Verb,
				r.Method,
				decisionlog.Reason,
				fmt.Sprintf("%v\n%s", failure, debug.Stack()),
			)
			out, err = nil, apierrors.NewInternalError(fmt.Errorf("reading the list failed"))
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pageTimeout)
	defer cancel()
	out = &page{code: http.StatusOK, header: http.Header{}, read: p.clock.Now(), first: first}
	next.ServeHTTP(&recorder{page: out}, r.WithContext(ctx))
	if out.code == http.StatusOK {
		p.keep(key, out)
	}
	return out, nil
}

func (p *pages) get(key string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.kept[key]
	if found == nil || found.first && p.clock.Since(found.read) > firstAge {
		return nil
	}
	return found
}

func (p *pages) keep(key string, added *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.kept[key]; old != nil { // its place in the order stays
		p.bytes -= old.body.Cap()
	} else {
		p.order = append(p.order, key)
	}
	p.kept[key] = added
	p.bytes += added.body.Cap()
	for p.bytes > maxKept {
		p.dropOldest()
	}
}

// expire drops old pages.
func (p *pages) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 && p.clock.Since(p.kept[p.order[0]].read) > pageAge {
		p.dropOldest()
	}
}

func (p *pages) dropOldest() {
	key := p.order[0]
	p.bytes -= p.kept[key].body.Cap()
	delete(p.kept, key)
	p.order = p.order[1:]
}

// recorder writes a response to a page.
type recorder struct{ page *page }

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.page.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) { r.page.code = code }

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) { return r.page.body.Write(p) }
