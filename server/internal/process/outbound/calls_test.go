package outbound

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// bomb is gzip of 64 MiB of zeros.
func bomb(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func callsTo(t *testing.T, names ...string) *Calls {
	t.Helper()
	networks, err := NewNetworks(names)
	if err != nil {
		t.Fatal(err)
	}
	return NewCalls(networks)
}

// client calls a host that is started by NewTLSServer.
func client(t *testing.T, calls *Calls, host *httptest.Server, limits Limits) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: host.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	return &http.Client{Transport: calls.RoundTripper(config, limits)}
}

func readAll(response *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}

func TestResponsesHaveLimits(t *testing.T) {
	packed := bomb(t)
	write := func(w http.ResponseWriter, size int) { _, _ = w.Write(bytes.Repeat([]byte("x"), size)) }
	chunks := func(w http.ResponseWriter, r *http.Request, chunk []byte, every time.Duration) {
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(every)
		}
	}
	limits := Limits{Bytes: 1000, Factor: 2, Sent: 5000, Time: 500 * time.Millisecond, Check: func(content []byte) error {
		if string(content) == "refused" {
			return errors.New("the answer is not liked")
		}
		return nil
	}}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		sent   int
		want   string // of the error
	}{
		"of the maximum size": {func(w http.ResponseWriter, _ *http.Request) { write(w, 1000) }, 0, ""},
		"larger than the limit": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1001")
			write(w, 1001)
		}, 0, "more than 1000 bytes"},
		"larger than the limit, in pieces": {func(w http.ResponseWriter, r *http.Request) {
			write(w, 500)
			w.(http.Flusher).Flush()
			write(w, 501)
		}, 0, "more than 1000 bytes"},
		"of the maximum size for its request": {func(w http.ResponseWriter, _ *http.Request) { write(w, 5000) }, 2000, ""},
		"larger than its request allows":      {func(w http.ResponseWriter, _ *http.Request) { write(w, 5001) }, 2000, "more than 5000 bytes"},
		"to a large request":                  {func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }, 5001, "the request has 5001 bytes; at most 5000 are allowed"},
		"without end":                         {func(w http.ResponseWriter, r *http.Request) { chunks(w, r, []byte(strings.Repeat("x", 100)), 0) }, 0, "more than 1000 bytes"},
		"one byte at a time":                  {func(w http.ResponseWriter, r *http.Request) { chunks(w, r, []byte("x"), 20*time.Millisecond) }, 0, "no complete response within 500ms"},
		"none":                                {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 0, "no complete response within 500ms"},
		"compressed without request": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed)
		}, 0, `Content-Encoding "gzip"`},
		"with large headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", maxHeaderBytes))
		}, 0, "response headers exceeded"},
		"refused":            {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "refused") }, 0, "the answer is not liked"},
		"in a redirect loop": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) }, 0, "more than 3 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if encoding := r.Header.Get("Accept-Encoding"); encoding != "identity" {
					t.Errorf("it requests the encoding %q", encoding)
				}
				test.answer(w, r)
			}))
			defer host.Close()
			calls := callsTo(t, Machine)
			_, err := readAll(client(t, calls, host, limits).Post(host.URL, "text/plain", bytes.NewReader(make([]byte, test.sent))))
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "calling "+host.Listener.Addr().String()+": ")):
				t.Errorf("got %v", err)
			}
			if calls.large.taken != 0 {
				t.Errorf("%d bytes are taken", calls.large.taken)
			}
		})
	}
}

func TestReadersGetOnlyTheHeadersThatTheyNeed(t *testing.T) {
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Warning", "Retry-After", "Set-Cookie", "Content-Type"} {
			w.Header().Set(name, "299 - text")
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	defer host.Close()
	response, err := client(t, callsTo(t, Machine), host, Limits{Bytes: 1000, Time: time.Minute}).Get(host.URL)
	if err != nil {
		t.Fatal(err)
	}
	content, err := readAll(response, nil)
	if err != nil || len(content) != maxErrorBytes {
		t.Errorf("%d bytes of the error are read: %v", len(content), err)
	}
	for name := range response.Header {
		if name != "Content-Type" && name != "Date" {
			t.Errorf("the reader gets the header %s", name)
		}
	}
	if response.ProtoMajor != 1 {
		t.Errorf("it is called by %s", response.Proto)
	}
}

func TestFewLargeResponsesAreReadAtATime(t *testing.T) {
	calls := &Calls{}
	body := func(holder string, size int64) *limited {
		return &limited{ReadCloser: io.NopCloser(io.LimitReader(zeros{}, size)), limit: size, free: freeBytes, large: &calls.large, holder: holder}
	}
	read := func(b *limited) error {
		_, err := io.Copy(io.Discard, b)
		return err
	}
	var held []*limited
	for n := range maxLarge / maxLargeOfHolder {
		b := body(fmt.Sprint(n), maxLargeOfHolder+freeBytes)
		if err := read(b); err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
		more := body(fmt.Sprint(n), freeBytes+1)
		if err := read(more); !errors.Is(err, errLarge) {
			t.Errorf("%s: got %v", more.holder, err)
		}
		more.Close()
		if small := body(fmt.Sprint(n), freeBytes); read(small) != nil {
			t.Errorf("%s gets no small answer", small.holder)
		}
	}
	other := body("other", freeBytes+1)
	if err := read(other); !errors.Is(err, errLarge) {
		t.Errorf("got %v", err)
	}
	for _, b := range held {
		b.Close()
		b.Close()
	}
	if err := read(other); err != nil {
		t.Error(err)
	}
	other.Close()
	if calls.large.taken != 0 || len(calls.large.of) != 0 {
		t.Errorf("%d bytes are taken, by %v", calls.large.taken, calls.large.of)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestFewIdleConnectionsAreKept(t *testing.T) {
	host := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer host.Close()
	calls := callsTo(t, Machine)
	c := client(t, calls, host, Limits{Bytes: 1000, Time: time.Minute})
	for range 3 {
		if _, err := readAll(c.Get(host.URL)); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.open.Load(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
	calls.open.Add(maxReused)
	if _, err := readAll(c.Get(host.URL)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); calls.open.Load() != maxReused; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a connection is kept though %d are open", calls.open.Load())
		}
	}
}

// Texts of errors, as the libraries make them, with addresses of the server, its resolver, and the host.
func TestErrorsNameTheHostAndTheCause(t *testing.T) {
	server, peer := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4567}, &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 443}
	refused := &net.OpError{Op: "dial", Net: "tcp", Source: server, Addr: peer, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: server, Addr: peer, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	dialing := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	address := regexp.MustCompile(`10\.\d|fd00|:53|:3128`)
	for _, test := range []struct {
		err  error
		want string
	}{
		{dialing(&net.DNSError{Err: "no such host", Name: "hooks.example.org", Server: "10.0.0.2:53", IsNotFound: true}), "no such host"},
		{dialing(&net.DNSError{Err: "read udp 10.1.2.3:4444->10.0.0.2:53: i/o timeout", Name: "hooks.example.org", Server: "10.0.0.2:53", IsTimeout: true}), "resolving its name timed out"},
		{dialing(&net.DNSError{Err: "server misbehaving", Name: "hooks.example.org", Server: "10.0.0.2:53", IsTemporary: true}), "resolving its name failed"},
		{refused, "dial: connection refused"},
		{reset, "read: connection reset by peer"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "remote error: tls: bad certificate"},
		{&net.OpError{Op: "proxyconnect", Net: "tcp", Addr: peer, Err: refused}, "the proxy of the server is unreachable"},
		{fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", reset), "read: connection reset by peer"},
		{fmt.Errorf("net/http: HTTP/1.x transport connection broken: %v", reset), "net/http: HTTP/1.x transport connection broken: read tcp: read: connection reset by peer"},
		{errors.New("lookup hooks.example.org on [fd00::2]:53: no such host"), "lookup hooks.example.org: no such host"},
		{&elsewhereError{"hooks.example.org:443"}, "the server does not call hooks.example.org:443, which is in a network that tenants may not use: an administrator of the installation can allow it with --tenant-webhook-networks"},
	} {
		failing := Limits{Time: time.Minute}.RoundTripper(roundTripper(func(*http.Request) (*http.Response, error) { return nil, test.err }))
		_, err := (&http.Client{Transport: failing}).Get("https://hooks.example.org/hook")
		if want := `Get "https://hooks.example.org/hook": calling hooks.example.org: ` + test.want; err == nil || err.Error() != want || address.MatchString(err.Error()) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%v is not the error that it describes", err)
		}
	}
	// A body that breaks off.
	broken := Limits{Bytes: 1000, Time: time.Minute}.RoundTripper(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(failingReader{reset}), ContentLength: -1}, nil
	}))
	if _, err := readAll((&http.Client{Transport: broken}).Get("https://hooks.example.org/hook")); err == nil || err.Error() != "calling hooks.example.org: read: connection reset by peer" {
		t.Errorf("got %v", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// As upstream's clients of webhooks call, through its wrappers and caches.
func TestWebhooksAreCalledWithinLimits(t *testing.T) {
	packed := bomb(t)
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) > 0 {
			t.Error("a webhook gets credentials")
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/packed" {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed)
			return
		}
		for range 64 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	defer host.Close()
	calls := callsTo(t, Machine)
	none, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	resolver := calls.Webhooks(Limits{Bytes: 1000, Time: time.Minute}, tracing.NewNoopTracerProvider())(none)
	u, err := url.Parse(host.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, get := range []func() (*rest.Config, error){
		func() (*rest.Config, error) { return resolver.ClientConfigFor("kubernetes.default.svc:443") },
		func() (*rest.Config, error) { return resolver.ClientConfigFor(u.Host) },
		func() (*rest.Config, error) { return resolver.ClientConfigForService("kubernetes", "default", 443) },
	} {
		config, err := get()
		if err != nil || config.BearerToken != "" || config.Host != "" || config.CertData != nil || config.CertFile != "" {
			t.Fatalf("a webhook gets %v, %v", config, err)
		}
		config.CAData = authorityOf(host)
		for path, want := range map[string]string{"/packed": `Content-Encoding "gzip"`, "/plain": "more than 1000 bytes"} {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readAll(client.Post(host.URL+path, "application/json", strings.NewReader("{}"))); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v", path, err)
			}
		}
	}
	// The networks are those of the calls.
	config, err := callsTo(t, Public).Webhooks(Limits{Bytes: 1000, Time: time.Minute}, tracing.NewNoopTracerProvider())(none).ClientConfigFor(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, authority := range [][]byte{nil, authorityOf(host)} {
		config.CAData = authority
		elsewhere, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(elsewhere.Get(host.URL)); err == nil || !strings.Contains(err.Error(), "does not call") {
			t.Errorf("a webhook calls the server itself: %v", err)
		}
	}
}

func TestLargeResponsesCountAgainstTheCallingCluster(t *testing.T) {
	calls := callsTo(t, Machine)
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }))
	defer host.Close()
	request, err := http.NewRequestWithContext(logicalcluster.WithName(context.Background(), "ours"), http.MethodGet, host.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client(t, calls, host, Limits{Bytes: 1 << 20, Time: time.Minute}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if n := calls.large.of["ours"]; n != 1<<20-freeBytes {
		t.Errorf("it holds %d bytes", n)
	}
	response.Body.Close()
	if n := calls.large.of["ours"]; n != 0 {
		t.Errorf("it holds %d bytes after all was read", n)
	}
}

func authorityOf(host *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw})
}
