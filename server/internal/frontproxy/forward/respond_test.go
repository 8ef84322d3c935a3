package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOnlyHeadersForTheBackendAreForwarded(t *testing.T) {
	for name, tc := range map[string]struct{ sent, want http.Header }{
		"headers about the connection": {http.Header{
			"Connection": {"keep-alive, X-Hop", "x-other-HOP ,"}, "X-Hop": {"1"}, "X-Other-Hop": {"2"}, "Keep-Alive": {"5"}, "Upgrade": {"h2c"},
			"Proxy-Authorization": {"x"}, "Proxy-Authenticate": {"x"}, "Proxy-Connection": {"x"}, "Te": {"gzip"}, "Trailer": {"X-Remote-User"},
			"Transfer-Encoding": {"chunked"}, "User-Agent": {"test"},
		}, http.Header{"User-Agent": {"test"}}},
		"what a client says about proxies": {http.Header{
			"Forwarded": {"for=10.0.0.1"}, "X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-Host": {"h"}, "X-Forwarded-Proto": {"p"},
		}, http.Header{}},
		"a client that reads trailers": {http.Header{"Te": {"trailers"}}, http.Header{"Te": {"trailers"}}},
		"everything else":              {http.Header{"Accept": {"a", "b"}, "Authorization": {"c"}}, http.Header{"Accept": {"a", "b"}, "Authorization": {"c"}}},
	} {
		if _, sent := tc.want["User-Agent"]; !sent {
			tc.want["User-Agent"] = nil
		}
		before := tc.sent.Clone()
		if diff := cmp.Diff(tc.want, EndToEnd(&http.Request{Header: tc.sent})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(before, tc.sent); diff != "" {
			t.Errorf("%s: the request of the client changes: %s", name, diff)
		}
	}
}

func TestABackendGetsTheAddressOfTheClient(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "https://kcp.test/", nil)
	r.RemoteAddr = "[2001:db8::1]:7"
	header := http.Header{}
	SetForwarded(header, r)
	want := http.Header{"X-Forwarded-For": {"2001:db8::1"}, "X-Forwarded-Host": {"kcp.test"}, "X-Forwarded-Proto": {"https"}}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Error(diff)
	}
}

// parts is a body that arrives in parts, each after the client has got what came before.
type parts struct {
	parts []string
	seen  func() string
	t     *testing.T
	err   error
	came  string
}

func (p *parts) Read(into []byte) (int, error) {
	if got := p.seen(); got != p.came {
		p.t.Errorf("the client has %q, want %q", got, p.came)
	}
	if len(p.parts) == 0 {
		return 0, p.err
	}
	n := copy(into, p.parts[0])
	p.came, p.parts = p.came+p.parts[0], p.parts[1:]
	return n, nil
}

func (*parts) Close() error { return nil }

// flushed is a client that has what was flushed.
type flushed struct {
	*httptest.ResponseRecorder
	got   string
	times int
}

func (f *flushed) FlushError() error {
	f.Flush()
	f.got = f.Body.String()
	f.times++
	return nil
}

func TestAStreamArrivesAtOnce(t *testing.T) {
	broken := errors.New("broken")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		stream bool
		err    error
		want   error
	}{
		"a watch":                            {t.Context(), true, io.EOF, nil},
		"a watch that the proxy ends":        {over, true, context.Canceled, nil},
		"a watch that breaks":                {t.Context(), true, broken, broken},
		"a response of unknown length":       {t.Context(), false, io.EOF, nil},
		"another response whose client left": {over, false, context.Canceled, context.Canceled},
	} {
		client := &flushed{ResponseRecorder: httptest.NewRecorder()}
		body := &parts{parts: []string{"a", "b", "c"}, seen: func() string { return client.got }, t: t, err: tc.err}
		response := &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: body, Header: http.Header{}}
		if err := Respond(tc.ctx, client, response, tc.stream); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
		want := 3
		if tc.stream {
			want = 4 // the header first
		}
		if client.got != "abc" || client.times != want {
			t.Errorf("%s: the client has %q, flushed %d times, want %d", name, client.got, client.times, want)
		}
	}
}

func TestTheHeadersOfAResponseAreForwarded(t *testing.T) {
	client := httptest.NewRecorder()
	client.Header().Set("Vary", "Origin")
	response := &http.Response{StatusCode: http.StatusTeapot, ContentLength: 4, Body: io.NopCloser(strings.NewReader("text")), Header: http.Header{
		"Vary": {"Accept"}, "Warning": {"a", "b"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"},
	}, Trailer: http.Header{"Grpc-Status": {"0"}}}
	if err := Respond(t.Context(), client, response, false); err != nil {
		t.Fatal(err)
	}
	got := client.Result()
	want := http.Header{"Vary": {"Origin", "Accept"}, "Warning": {"a", "b"}}
	if diff := cmp.Diff(want, got.Header, cmpopts.IgnoreMapEntries(func(name string, _ []string) bool {
		return strings.HasPrefix(name, http.TrailerPrefix)
	})); diff != "" {
		t.Error(diff)
	}
	if got.StatusCode != http.StatusTeapot || client.Body.String() != "text" || got.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%d, %q, trailer %v", got.StatusCode, client.Body, got.Trailer)
	}
}

// watched is a body that counts how often it is read.
type watched struct {
	io.Reader
	reads int
}

func (w *watched) Read(p []byte) (int, error) {
	w.reads++
	return w.Reader.Read(p)
}

func TestNothingIsReadFromTheClientAfterItsResponse(t *testing.T) {
	from := &watched{strings.NewReader("x"), 0}
	kept := newBody(io.NopCloser(from))
	sending := kept.attempt()
	ctx := patient(t.Context(), abandonedFor)
	response := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
	ctx.until(response, kept)
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sending.Read(make([]byte, 1)); !errors.Is(err, errSent) || from.reads != 0 {
		t.Errorf("after the response, the body is read %d times: %v", from.reads, err)
	}
	if ctx.Err() == nil {
		t.Error("the context of the request goes on")
	}
}
