package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	maxRedirects = 3
	// maxErrorBytes is the number of bytes that are read of a response with an error status.
	maxErrorBytes = 16 << 10
	// freeBytes is the number of bytes of every response that do not count against the budget of large responses.
	freeBytes = 64 << 10
)

// passed are the headers of a response that its reader gets. Others would have effects in the libraries that read the response: they log
// warnings, and Retry-After repeats the call.
var passed = []string{"Cache-Control", "Content-Length", "Content-Type", "Date", "Expires", "Location"}

// Limits bounds the cost of a response.
type Limits struct {
	// Bytes is the maximum size of a response, plus Factor bytes for each byte of the request.
	Bytes, Factor int64
	// Sent is the maximum size of a request, 0 for any size.
	Sent int64
	// Time is the maximum duration of a call, until the last byte of the response.
	Time time.Duration
	// Stream means that the reader reads a response piece by piece, without limits of size and time.
	Stream bool
	// Check refuses responses because of their content. It gets complete successful responses. It may be nil.
	Check func([]byte) error

	large *budget
}

// RoundTripper returns a RoundTripper that calls next within the limits. Its errors name the host and the cause, and no addresses of the
// server, its resolver or the host.
func (l Limits) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := l.within(r.Context())
		response, err := l.exchange(ctx, next, r)
		if err != nil {
			err = describe(ctx, r, err)
			cancel()
			return nil, err
		}
		body := &answer{ReadCloser: response.Body, ctx: ctx, cancel: cancel, request: r}
		response.Body = body
		if l.Check == nil || response.StatusCode != http.StatusOK {
			return response, nil
		}
		defer body.Close()
		content, err := io.ReadAll(body)
		if err != nil {
			return nil, err // described already
		}
		if err := l.Check(content); err != nil {
			return nil, describe(ctx, r, err)
		}
		response.Body = io.NopCloser(bytes.NewReader(content))
		return response, nil
	})
}

// within returns the context of a call.
func (l Limits) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.Stream {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, l.Time, fmt.Errorf("no complete response within %s", l.Time))
}

func (l Limits) exchange(ctx context.Context, next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if l.Sent > 0 && r.ContentLength > l.Sent {
		drop(r.Body)
		return nil, fmt.Errorf("the request has %d bytes; at most %d are allowed", r.ContentLength, l.Sent)
	}
	redirects := 0
	for earlier := r.Response; earlier != nil && earlier.Request != nil; earlier = earlier.Request.Response {
		redirects++
	}
	if redirects > maxRedirects {
		drop(r.Body)
		return nil, fmt.Errorf("more than %d redirects", maxRedirects)
	}
	out := r.Clone(ctx)
	out.Header.Set("Accept-Encoding", "identity")
	response, err := next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	limit := l.Bytes
	if r.ContentLength > 0 {
		limit += l.Factor * r.ContentLength
	}
	header := http.Header{}
	for _, name := range passed {
		if values := response.Header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	encoding := response.Header.Get("Content-Encoding")
	response.Header, response.Trailer = header, nil
	response.Status = fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch {
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		err = fmt.Errorf("the response has Content-Encoding %q, but must not be compressed", encoding)
	case response.StatusCode >= http.StatusMultipleChoices:
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxErrorBytes), response.Body}
		response.ContentLength = -1
		delete(header, "Content-Length")
		return response, nil
	case l.Stream:
		return response, nil
	case response.ContentLength > limit:
		err = tooLarge(limit)
	}
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	holder := r.URL.Host
	if cluster, err := logicalcluster.NameFrom(r.Context()); err == nil {
		holder = string(cluster)
	}
	response.Body = &limited{ReadCloser: response.Body, limit: limit, free: freeBytes + limit - l.Bytes, large: l.large, holder: holder}
	return response, nil
}

func drop(body io.Closer) {
	if body != nil {
		body.Close()
	}
}

func tooLarge(limit int64) error {
	return fmt.Errorf("the response has more than %d bytes, which is the limit", limit)
}

// answer is a body that describes its errors, and ends the call when it is closed.
type answer struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelFunc
	request *http.Request
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = describe(a.ctx, a.request, err)
	}
	return n, err
}

// Close implements io.Closer.
func (a *answer) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

// limited is a body that fails after limit bytes. Until it is closed, bytes beyond free count against the budget of large responses.
type limited struct {
	io.ReadCloser
	limit, free int64
	large       *budget
	holder      string

	read, taken int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if left := l.limit - l.read; int64(len(p)) > left+1 {
		p = p[:left+1] // one more byte shows that the body is longer
	}
	n, err := l.ReadCloser.Read(p)
	l.read += int64(n)
	if l.read > l.limit {
		return 0, tooLarge(l.limit)
	}
	if more := l.read - l.free - l.taken; more > 0 && l.large != nil {
		more = (more + freeBytes - 1) / freeBytes * freeBytes
		if !l.large.take(l.holder, more) {
			return 0, errLarge
		}
		l.taken += more
	}
	return n, err
}

// Close implements io.Closer.
func (l *limited) Close() error {
	if l.taken > 0 {
		l.large.give(l.holder, l.taken)
		l.taken = 0
	}
	return l.ReadCloser.Close()
}
