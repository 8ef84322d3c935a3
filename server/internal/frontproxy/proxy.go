// Package frontproxy is the program kcp front-proxy. It authenticates users, finds the shard that holds the logical cluster of a request,
// and forwards the request there.
package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/frontproxy/answer"
	"github.com/kcplane/kcp/server/internal/frontproxy/forward"
	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// Proxy serves the requests of clients.
//
// Invariants:
//   - What only the installation may say in headers is removed from each request before anything is added, and nothing is removed after it.
//   - The path that a backend gets is the one that was checked and resolved.
//   - No request of a client reaches what shards serve for front proxies.
//   - Every open request counts for its client and ends with it, with the proxy, or when its client makes no progress.
type Proxy struct {
	users    users
	groups   identity.Filter
	files    atomic.Pointer[files]
	shards   *shardSet
	resolver *questions.Resolver
	open     *openRequests
	metrics  *instruments
	audit    *refusals
	clock    clock.PassiveClock
	// ending ends when open watches must end.
	ending context.Context

	once sync.Once
	hops forward.Hops
	// upgrades forwards the requests that upgrade their connections. For others, it takes more processor time than the rest of the proxy.
	upgrades *httputil.ReverseProxy
}

// exchange is one request, in the context of its way through the proxy.
type exchange struct {
	// request is as the client has sent it, and began when it arrived.
	request     *http.Request
	began       time.Time
	caller      caller
	destination destination
	guard       *identity.Guard
	// last is where the request was sent last; nil if it was not.
	last  *forward.Target
	watch bool
}

// exchangeKey is the key of the exchange in the context of a request that upgrades its connection.
type exchangeKey struct{}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.once.Do(p.build)
	recorded := &recorder{ResponseWriter: w}
	x := &exchange{request: r, began: p.clock.Now()}
	p.metrics.open.Inc()
	defer func() {
		p.metrics.open.Dec()
		p.metrics.answered(targetName(x.last), r.Method, recorded.status(), p.clock.Since(x.began))
	}()
	defer recovered(recorded, r)
	if err := p.serve(recorded, r, x); err != nil {
		p.refuse(recorded, x, err)
	}
}

// recovered ends a request whose handler has panicked, as net/http does, and logs where.
func recovered(w http.ResponseWriter, r *http.Request) {
	failure := recover()
	if failure == nil {
		return
	}
	if failure != any(http.ErrAbortHandler) {
		reason := fmt.Sprintf("%v\n%s", failure, debug.Stack())
		klog.ErrorS(nil, "Serving a request panicked", decisionlog.Verb, r.Method, decisionlog.Reason, reason)
	}
	panic(http.ErrAbortHandler)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, x *exchange) (err error) {
	if x.caller, err = callerOf(r, p.users); err != nil {
		return err
	}
	end, err := p.open.begin(x.caller.client.Key)
	if err != nil {
		return err
	}
	defer end()
	if err := forward.CheckUpgrade(r); err != nil {
		return err
	}
	if x.destination, err = p.destination(r, x.caller); err != nil {
		return err
	}
	x.guard = p.files.Load().guard
	x.watch = isWatch(r)
	ctx := r.Context()
	if x.watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.ending, cancel)()
	}
	p.send(ctx, w, x)
	return nil
}

// send forwards a request, and the response.
func (p *Proxy) send(ctx context.Context, w http.ResponseWriter, x *exchange) {
	route := p.route(x)
	if httpstream.IsUpgradeRequest(x.request) {
		ctx = context.WithValue(forward.WithRoute(ctx, route), exchangeKey{}, x)
		p.upgrades.ServeHTTP(w, x.request.WithContext(ctx))
		return
	}
	out := x.request.WithContext(ctx)
	out.Header = forward.EndToEnd(x.request)
	p.rewrite(out.Header, x)
	if out.ContentLength == 0 {
		out.Body = nil
	}
	response, err := p.hops.Along(out, route)
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		err = errors.New("the backend has upgraded the connection of a request that did not ask for it")
	}
	if err != nil {
		p.failed(ctx, w, x, err)
		return
	}
	stream := x.watch || x.destination.target.Shard == "" || strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	if err := forward.Respond(ctx, w, response, stream); err != nil {
		panic(http.ErrAbortHandler) // one of both sides has gone in the middle of the response
	}
}

// route returns the way of a request.
func (p *Proxy) route(x *exchange) *forward.Route {
	return &forward.Route{
		Target: x.destination.target,
		Next: func(ctx context.Context, last forward.Target, m tree.Marker) (forward.Target, error) {
			return p.next(ctx, x.caller, x.destination, last, m)
		},
		Sent: func(t forward.Target) {
			if x.last == nil {
				p.metrics.overhead.Observe(p.clock.Since(x.began).Seconds())
			}
			x.last = &t
		},
		Marked: p.metrics.marked,
	}
}

// isWatch reports whether a request stays open until one side ends it.
func isWatch(r *http.Request) bool {
	if httpstream.IsUpgradeRequest(r) {
		return true
	}
	if q := r.URL.RawQuery; !strings.Contains(q, "watch") && !strings.Contains(q, "follow") && !strings.Contains(q, "%") {
		return false // without parsing it
	}
	query := r.URL.Query()
	switch query.Get("watch") {
	case "", "0", "false":
		return query.Get("follow") == "true"
	}
	return true
}

func (p *Proxy) build() {
	p.hops = forward.NewHops()
	p.upgrades = &httputil.ReverseProxy{
		Transport: p.hops,
		Rewrite: func(out *httputil.ProxyRequest) {
			x := out.In.Context().Value(exchangeKey{}).(*exchange)
			out.Out.URL.RawQuery = out.In.URL.RawQuery
			p.rewrite(out.Out.Header, x)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.failed(r.Context(), w, r.Context().Value(exchangeKey{}).(*exchange), err)
		},
	}
}

// rewrite sets the headers of the request for the backend. Hop-by-hop headers, and those that the client lists as such, are gone already.
func (p *Proxy) rewrite(header http.Header, x *exchange) {
	x.guard.Clean(header)
	forward.SetForwarded(header, x.request)
	if x.caller.certificate != "" && x.destination.target.Shard != "" {
		header.Set(clientcertificates.Header, x.caller.certificate)
	}
	if x.caller.user == nil {
		return
	}
	x.destination.headers.Set(header, p.groups.Apply(x.caller.user))
	if !x.destination.credentials {
		header.Del("Authorization")
	}
}

// failed responds to a request that got no response.
func (p *Proxy) failed(ctx context.Context, w http.ResponseWriter, x *exchange, err error) {
	var answered apierrors.APIStatus
	var unreachable *forward.Unreachable
	switch {
	case errors.As(err, &answered):
		p.refuse(w, x, err)
	case ctx.Err() != nil:
		panic(http.ErrAbortHandler) // the client has left, or the proxy ends the watch
	case errors.As(err, &unreachable):
		klog.FromContext(ctx).V(1).Info("A backend does not respond", decisionlog.Shard, unreachable.Target.Shard, decisionlog.Error, err)
		p.refuse(w, x, noResponse(x.request.Method, unreachable))
	default:
		p.refuse(w, x, apierrors.NewInternalError(errors.New("forwarding the request failed")))
	}
}

// noResponse returns the error for a request that got no response. Clients repeat a request when they are asked to, so they are not if a
// write may have been executed.
func noResponse(method string, u *forward.Unreachable) error {
	what := "the server for this path"
	if u.Target.Shard != "" {
		what = "shard \"" + u.Target.Shard + "\", which holds the workspace,"
	}
	reads := method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
	if u.Executed() && !reads {
		return answer.Status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			what+" has not responded; the request may have been executed: read the object before you try again")
	}
	return answer.Unavailable(what + " does not respond; try again")
}

// refuse responds with an error. net/http discards the rest of a body.
func (p *Proxy) refuse(w http.ResponseWriter, x *exchange, err error) {
	p.metrics.refusedWith(int(statusOf(err).Code))
	p.audit.record(w, x.request, x.caller.user, x.began, err)
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, x.request)
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// status returns the status; 0 if the request ended without one.
func (w *recorder) status() int { return w.code }
