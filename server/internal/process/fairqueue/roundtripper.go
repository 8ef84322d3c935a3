package fairqueue

import (
	"io"
	"net/http"
	"sync"
)

// RoundTripper returns a RoundTripper that calls hosts of tenants with next. The request of the context of a call has no seat until the
// response is read.
func RoundTripper(next http.RoundTripper) http.RoundTripper { return waiting{next} }

type waiting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	t := From(r.Context())
	if t == nil {
		return w.next.RoundTrip(r)
	}
	t.Wait()
	response, err := w.next.RoundTrip(r)
	if err != nil {
		t.Resume()
		return nil, err
	}
	response.Body = &answer{ReadCloser: response.Body, resume: sync.OnceFunc(func() { t.Resume() })}
	return response, nil
}

// WrappedRoundTripper implements k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper.
func (w waiting) WrappedRoundTripper() http.RoundTripper { return w.next }

// answer is a body. When it is closed, the request waits for its seat again.
type answer struct {
	io.ReadCloser
	resume func()
}

// Close implements io.Closer.
func (a *answer) Close() error {
	defer a.resume()
	return a.ReadCloser.Close()
}
