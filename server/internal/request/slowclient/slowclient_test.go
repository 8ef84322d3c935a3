package slowclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const timeout = 500 * time.Millisecond

// serve serves a handler over HTTP/1.1 or 2 behind clients that are given up.
func serve(t *testing.T, major int, handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(New(timeout, clock.RealClock{}).WithTimeout(handler))
	s.Listener = Listener(s.Listener, timeout)
	s.EnableHTTP2 = major == 2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func protocols(t *testing.T, test func(t *testing.T, major int)) {
	for _, major := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", major), func(t *testing.T) { test(t, major) })
	}
}

// ended waits for what a handler sends when it ends.
func ended[T any](t *testing.T, of <-chan T) T {
	t.Helper()
	select {
	case value := <-of:
		return value
	case <-time.After(30 * time.Second):
		t.Fatal("the handler does not end")
		panic("unreachable")
	}
}

func TestAResponseThatIsNotReadEnds(t *testing.T) {
	protocols(t, func(t *testing.T, major int) {
		result := make(chan error, 1)
		s := serve(t, major, func(w http.ResponseWriter, r *http.Request) {
			chunk := make([]byte, 64<<20)
			_, err := w.Write(chunk)
			result <- err
		})
		response, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := ended(t, result); err == nil {
			t.Error("64 MiB were written to a client that does not read")
		}
	})
}

// A handler that has returned leaves what is buffered to be written.
func TestASmallResponseThatIsNotReadEnds(t *testing.T) {
	returned := make(chan struct{}, 1)
	states := make(chan http.ConnState, 16)
	s := httptest.NewUnstartedServer(New(timeout, clock.RealClock{}).WithTimeout(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "small")
		returned <- struct{}{}
	})))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	s.StartTLS()
	defer s.Close()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The preface, SETTINGS_INITIAL_WINDOW_SIZE=0, and GET / of an authority: nothing of the answer may be sent.
	hello := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0)
	headers := []byte{0x82, 0x87, 0x84, 0x41, 1, 'a'}
	hello = append(append(hello, 0, 0, byte(len(headers)), 1, 5, 0, 0, 0, 1), headers...)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	ended(t, returned)
	reset := make(chan struct{})
	go func() {
		defer close(reset)
		for frame := make([]byte, 9); ; {
			if _, err := io.ReadFull(conn, frame); err != nil {
				return
			}
			length := int64(frame[0])<<16 | int64(frame[1])<<8 | int64(frame[2])
			if _, err := io.CopyN(io.Discard, conn, length); err != nil || frame[3] == 3 { // RST_STREAM
				return
			}
		}
	}()
	ended(t, reset)
}

// reader is a client that takes time to read a step.
type reader struct {
	http.ResponseWriter
	read      func()
	abandoned bool
}

func (r *reader) Write(p []byte) (int, error) {
	r.read()
	if r.abandoned {
		return 0, errors.New("the client is given up")
	}
	return len(p), nil
}

func (r *reader) SetWriteDeadline(at time.Time) error {
	r.abandoned = r.abandoned || at.Before(time.Unix(2, 0)) && !at.IsZero()
	return nil
}

func TestASlowClientGetsTheCompleteResponse(t *testing.T) {
	for name, test := range map[string]struct {
		step     time.Duration
		complete bool
	}{"slowly": {time.Minute * 9 / 10, true}, "hardly": {time.Minute * 11 / 10, false}} {
		now := clocktesting.NewFakePassiveClock(time.Now())
		clients := New(time.Minute, now)
		w := &reader{ResponseWriter: httptest.NewRecorder(), read: func() {
			now.SetTime(now.Now().Add(test.step))
			clients.check()
		}}
		complete := false
		clients.WithTimeout(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := w.Write(make([]byte, 10*writeStep))
			complete = err == nil && n == 10*writeStep
		})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if complete != test.complete {
			t.Errorf("a client that reads %s gets all: %t", name, complete)
		}
	}
}

func TestAWatchWithoutEventsContinues(t *testing.T) {
	protocols(t, func(t *testing.T, major int) {
		s := serve(t, major, func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "event\n")
				w.(http.Flusher).Flush()
				<-time.After(2 * timeout)
			}
		})
		response, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if all, err := io.ReadAll(response.Body); err != nil || strings.Count(string(all), "event") != 3 {
			t.Errorf("got %q, %v", all, err)
		}
	})
}

func TestARequestWithATricklingBodyEnds(t *testing.T) {
	protocols(t, func(t *testing.T, major int) {
		result := make(chan error, 1)
		s := serve(t, major, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			result <- err
			w.WriteHeader(http.StatusRequestTimeout)
		})
		body, send := io.Pipe()
		stop := make(chan struct{})
		go func() {
			defer send.Close()
			for {
				select {
				case <-stop:
					return
				case <-time.After(timeout / 10):
					_, _ = send.Write([]byte("x"))
				}
			}
		}()
		go func() {
			if response, err := s.Client().Post(s.URL, "", body); err == nil {
				_ = response.Body.Close()
			}
		}()
		err := ended(t, result)
		close(stop)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusRequestTimeout {
			t.Errorf("reading a body that trickles returns %v", err)
		}
	})
}

func TestTheDeadlineOfAResponseDoesNotApplyToTheNext(t *testing.T) {
	protocols(t, func(t *testing.T, major int) {
		s := serve(t, major, func(w http.ResponseWriter, r *http.Request) {
			all, _ := io.ReadAll(r.Body)
			_, _ = w.Write(all)
		})
		for range 2 {
			response, err := s.Client().Post(s.URL, "", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(response.Body); string(got) != "body" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			_ = response.Body.Close()
			<-time.After(2 * timeout)
		}
	})
}

func TestAHijackedConnectionHasNoDeadline(t *testing.T) {
	s := serve(t, 1, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			<-time.After(2 * timeout)
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}()
	})
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode != http.StatusNoContent {
		t.Errorf("got %v, %v", response, err)
	}
}

func TestEndedRequestsLeaveNothingInMemory(t *testing.T) {
	c := New(timeout, clock.RealClock{})
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader("body"))
	c.WithTimeout(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })).ServeHTTP(w, r)
	if w.Body.String() != "body" || len(c.waiting) != 0 {
		t.Errorf("got %q, and %d requests are waiting", w.Body, len(c.waiting))
	}
}

func BenchmarkASmallAnswer(b *testing.B) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "small") })
	for name, handler := range map[string]http.Handler{"plain": plain, "with timeout": New(time.Minute, clock.RealClock{}).WithTimeout(plain)} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewUnstartedServer(handler)
			s.EnableHTTP2 = true
			s.StartTLS()
			defer s.Close()
			for b.Loop() {
				response, err := s.Client().Get(s.URL)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
}
