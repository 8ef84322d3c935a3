package cacheserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
)

const everywhere = "/services/cache/shards/*/clusters/*" + exportsPath

// listing counts how often a list is read.
type listing struct {
	reads atomic.Int64
	gate  chan struct{} // if it is not nil, reads wait until it is closed
	code  int
	size  int
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := l.reads.Add(1)
	if l.gate != nil {
		<-l.gate
	}
	w.WriteHeader(l.code)
	_, _ = fmt.Fprintf(w, "%d %s", n, bytes.Repeat([]byte("x"), l.size))
}

// page requests a page, and returns the first word of the response.
func (l *listing) page(t *testing.T, p *pages, path string, header ...string) string {
	t.Helper()
	r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if err := p.serve(w, r, l); err != nil {
		t.Error(err)
	}
	if w.Code != l.code {
		t.Errorf("GET %s: got %d", path, w.Code)
	}
	word, _, _ := strings.Cut(w.Body.String(), " ")
	return word
}

func TestWhichPagesAreKept(t *testing.T) {
	for _, c := range []struct {
		query string
		kept  bool
	}{
		{"?limit=500&resourceVersion=0", true},
		{"?limit=500&continue=token", true},
		{"?limit=500", false}, // the latest state
		{"", false},
		{"?resourceVersion=7", false},
		{"?resourceVersion=0&labelSelector=a", false},
		{"?resourceVersion=0&resourceVersion=7", false},
		{"?continue=token&fieldSelector=metadata.name=a", false},
	} {
		l, p := &listing{code: http.StatusOK}, newPages(testclock.NewFakeClock(began))
		want := "2"
		if c.kept {
			want = "1"
		}
		l.page(t, p, "/list"+c.query)
		if got := l.page(t, p, "/list"+c.query); got != want {
			t.Errorf("%s: the second response is that of read %s, want %s", c.query, got, want)
		}
		if got := l.page(t, p, "/list"+c.query, "Accept", "other"); c.kept && got != "2" {
			t.Errorf("%s: another media type got the response of read %s", c.query, got)
		}
		if got := l.page(t, p, "/list"+c.query, "Accept-Encoding", "gzip"); c.kept && got != "3" {
			t.Errorf("%s: another encoding got the response of read %s", c.query, got)
		}
		if got := l.page(t, p, "/other"+c.query); c.kept && got != "4" {
			t.Errorf("%s: another list got the response of read %s", c.query, got)
		}
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	l, p := &listing{code: http.StatusGone}, newPages(testclock.NewFakeClock(began))
	l.page(t, p, "/list?continue=token")
	if got := l.page(t, p, "/list?continue=token"); got != "2" {
		t.Errorf("got the response of read %s", got)
	}
}

func TestPagesExpire(t *testing.T) {
	clock := testclock.NewFakeClock(began)
	l, p := &listing{code: http.StatusOK}, newPages(clock)
	const first, next = "/list?resourceVersion=0", "/list?continue=token"
	l.page(t, p, first)
	l.page(t, p, next)
	clock.Step(firstAge + time.Second)
	if got := l.page(t, p, next); got != "2" {
		t.Errorf("a page of a revision is that of read %s", got)
	}
	if got := l.page(t, p, first); got != "3" {
		t.Errorf("the first page is that of read %s", got)
	}
	clock.Step(pageAge + time.Second)
	p.expire()
	if p.bytes != 0 || len(p.kept)+len(p.order) != 0 {
		t.Errorf("after their time, %d bytes and %d pages are kept", p.bytes, len(p.kept))
	}
}

func TestKeptPagesAreBounded(t *testing.T) {
	l, p := &listing{code: http.StatusOK, size: 8 << 20}, newPages(testclock.NewFakeClock(began))
	for i := range 20 {
		l.page(t, p, fmt.Sprintf("/list?continue=%d", i))
	}
	if p.bytes > maxKept || len(p.kept) != len(p.order) || len(p.kept) == 0 {
		t.Errorf("%d bytes of %d pages are kept", p.bytes, len(p.kept))
	}
}

// waiting is the context of a request that waits for a page. It records that the request began to wait.
type waiting struct {
	context.Context
	begun *sync.WaitGroup
	once  sync.Once
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(w.begun.Done)
	return w.Context.Done()
}

func TestAPageIsReadOnceForAllWhoWait(t *testing.T) {
	const clients = 10
	l, p := &listing{code: http.StatusOK, gate: make(chan struct{})}, newPages(testclock.NewFakeClock(began))
	var begun, answered sync.WaitGroup
	begun.Add(clients)
	for range clients {
		r := httptest.NewRequest(http.MethodGet, "/list?resourceVersion=0", nil)
		r = r.WithContext(&waiting{Context: t.Context(), begun: &begun})
		answered.Go(func() {
			w := httptest.NewRecorder()
			if err := p.serve(w, r, l); err != nil || w.Body.Len() == 0 {
				t.Errorf("got %q, %v", w.Body, err)
			}
		})
	}
	begun.Wait()
	close(l.gate)
	answered.Wait()
	if n := l.reads.Load(); n != 1 {
		t.Errorf("the page was read %d times", n)
	}
}

func TestAPanicOfAListEndsOnlyItsRequest(t *testing.T) {
	p := newPages(testclock.NewFakeClock(began))
	r := httptest.NewRequest(http.MethodGet, "/list?resourceVersion=0", nil)
	failing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
	if err := p.serve(httptest.NewRecorder(), r, failing); err == nil {
		t.Error("got no error")
	}
}

// A shard that starts reads a list of any version, whose changes follow in the watch. A shard that wants the latest state gets it.
func TestAKeptListMissesNoChange(t *testing.T) {
	s := start(t, nil)
	own := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	all := in(t, s.shard(t, "beta"), "*", "*").Resource(exports)
	create(t, own, object("before", nil))
	anyVersion := metav1.ListOptions{ResourceVersion: "0"}
	if _, err := all.List(t.Context(), anyVersion); err != nil {
		t.Fatal(err)
	}
	create(t, own, object("after", nil))
	kept, err := all.List(t.Context(), anyVersion)
	if err != nil || len(kept.Items) != 1 {
		t.Fatalf("got %v, %v", kept, err)
	}
	events, err := all.Watch(t.Context(), metav1.ListOptions{ResourceVersion: kept.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if event := <-events.ResultChan(); event.Object.(metav1.Object).GetName() != "after" {
		t.Errorf("the first event is %v", event)
	}
	if latest, err := all.List(t.Context(), metav1.ListOptions{}); err != nil || len(latest.Items) != 2 {
		t.Errorf("the latest list is %v, %v", latest, err)
	}
	if code, message, _ := send(t, s.as(t), http.MethodGet, everywhere+"?resourceVersion=0", ""); code != http.StatusUnauthorized {
		t.Errorf("a stranger got a kept page: %d %.100s", code, message)
	}
}
