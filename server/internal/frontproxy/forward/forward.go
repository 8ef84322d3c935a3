// Package forward sends requests to shards and other backends. A shard that does not hold the logical cluster of a request refuses it with
// a marker, before it does anything; then the request is sent to the shard that does.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kcplane/kcp/server/internal/frontproxy/answer"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// maxHops is the number of markers that a request follows.
const maxHops = 2

// Target is where a request is sent.
type Target struct {
	// Shard is the name of the shard; empty for another backend.
	Shard string
	// Base is the URL to which the path and the query of the request are added.
	Base *url.URL
	// Path is the path of the request, decoded.
	Path string
	// Expect is what the shard must hold to serve the request; nil if it serves it in any case.
	Expect *tree.Expectation
	// Via are the connections.
	Via *Connections
}

// Route is the way of one request.
type Route struct {
	Target Target
	// Next returns the next target after a marker. The error is for the client.
	Next func(ctx context.Context, last Target, m tree.Marker) (Target, error)
	// Sent is called before each attempt, and Marked with each marker.
	Sent   func(Target)
	Marked func(tree.Marker)
}

type routeKey struct{}

// WithRoute returns a context for a request that Hops sends along a route.
func WithRoute(ctx context.Context, r *Route) context.Context {
	return context.WithValue(ctx, routeKey{}, r)
}

// Unreachable is the error of a request that got no response.
type Unreachable struct {
	Target Target
	Err    error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("%s does not respond: %v", u.Target.name(), u.Err)
}

// Executed reports whether the target may have executed the request.
func (u *Unreachable) Executed() bool { return !unsent(u.Err) }

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

func (t Target) name() string {
	if t.Shard != "" {
		return fmt.Sprintf("shard %q", t.Shard)
	}
	return fmt.Sprintf("backend %q", t.Base.Host)
}

// Hops is a RoundTripper for requests with a Route. It is the only one that follows markers, and clients never see them.
type Hops struct {
	held     chan struct{}
	patience time.Duration
}

// NewHops returns Hops that hold few requests at a time.
func NewHops() Hops { return Hops{held: make(chan struct{}, maxHeld), patience: abandonedFor} }

// RoundTrip implements http.RoundTripper, for requests with a Route in their contexts.
func (h Hops) RoundTrip(r *http.Request) (*http.Response, error) {
	route, ok := r.Context().Value(routeKey{}).(*Route)
	if !ok {
		return nil, errors.New("the request has no route")
	}
	return h.Along(r, route)
}

// Along sends a request along a route. It may change the header of the request.
func (h Hops) Along(r *http.Request, route *Route) (*http.Response, error) {
	var kept *body
	if r.Body != nil && r.Body != http.NoBody {
		kept = newBody(r.Body)
		defer kept.drop()
	}
	target, moving := route.Target, pauses{held: h.held}
	defer moving.end()
	for hop := 0; ; hop++ {
		response, err := h.send(r, kept, target, route.Sent)
		if err != nil {
			return nil, err
		}
		m, marked, err := markerOf(response, target)
		if err != nil || !marked {
			return response, err
		}
		route.Marked(m)
		if m.Verdict == tree.Moving {
			if !moving.pause(r.Context()) {
				return nil, unsettled(target, "it is being moved to another shard")
			}
			hop = -1
		}
		if hop == maxHops {
			return nil, unsettled(target, "it moves while the request is under way")
		}
		if target, err = route.Next(r.Context(), target, m); err != nil {
			return nil, err
		}
		r = r.WithContext(r.Context())
		r.Header = maps.Clone(r.Header) // the transport may still read the one that was sent
	}
}

const (
	// A request for a logical cluster that is moving is sent again after each holdPause, at most holdTimes.
	holdPause = 100 * time.Millisecond
	holdTimes = 30
	// maxHeld limits the requests that wait at a time, each with up to keptBody bytes. Others get an error at once.
	maxHeld = 512
)

// pauses are those of one request while the logical cluster moves.
type pauses struct {
	held  chan struct{}
	taken int
}

// pause waits for a moment, and reports whether the request may be sent again.
func (p *pauses) pause(ctx context.Context) bool {
	if p.taken == 0 {
		select {
		case p.held <- struct{}{}:
		default:
			return false
		}
	}
	if p.taken++; p.taken > holdTimes {
		return false
	}
	select {
	case <-time.After(holdPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// end lets another request wait.
func (p *pauses) end() {
	if p.taken > 0 {
		<-p.held
	}
}

func unsettled(t Target, why string) error {
	cluster := ""
	if t.Expect != nil {
		cluster = string(t.Expect.Cluster)
	}
	return answer.Unavailable(fmt.Sprintf("logical cluster %q cannot be reached now, because %s; try again", cluster, why))
}

// markerOf returns the marker in a response, which is closed then. It removes the header from other responses.
func markerOf(response *http.Response, t Target) (m tree.Marker, marked bool, err error) {
	text := response.Header.Get(tree.PlacementHeader)
	response.Header.Del(tree.PlacementHeader)
	if response.StatusCode != http.StatusMisdirectedRequest || t.Expect == nil || text == "" {
		return tree.Marker{}, false, nil
	}
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection is used again
	_ = response.Body.Close()
	if m, err = tree.ParseMarker(text); err == nil && m.Shard != t.Shard {
		err = fmt.Errorf("it says that it is shard %q; check the URLs of both", m.Shard)
	}
	if err != nil {
		return tree.Marker{}, false, &Unreachable{Target: t, Err: err}
	}
	return m, true, nil
}

// send sends a request once. It tries again if the request did not reach the target.
func (h Hops) send(r *http.Request, kept *body, t Target, sent func(Target)) (*http.Response, error) {
	transport := t.Via.plain()
	if httpstream.IsUpgradeRequest(r) {
		transport = t.Via.upgrades()
	}
	ctx := patient(r.Context(), h.patience)
	defer ctx.answered()
	for try := 0; ; try++ {
		out, err := request(ctx, r, kept, t)
		if err == nil {
			sent(t)
			var response *http.Response
			if response, err = transport.RoundTrip(out); err == nil {
				ctx.until(response, kept)
				return response, nil
			}
			if try == 0 && unsent(err) && r.Context().Err() == nil {
				continue
			}
			err = &Unreachable{Target: t, Err: err}
		}
		ctx.end()
		kept.close()
		return nil, err
	}
}

// unsent reports whether an error says that no byte of a request was sent.
func unsent(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}

// request returns the request for a target.
func request(ctx context.Context, r *http.Request, kept *body, t Target) (*http.Request, error) {
	out := r.WithContext(ctx)
	u := *t.Base
	u.Path, u.RawPath, u.RawQuery = strings.TrimSuffix(t.Base.Path, "/")+t.Path, "", r.URL.RawQuery
	out.URL, out.Host, out.Trailer, out.Close = &u, "", nil, false
	out.Header.Del("Expect")
	if t.Expect != nil {
		out.Header.Set(tree.ExpectHeader, t.Expect.String())
	}
	out.Body, out.GetBody = http.NoBody, nil
	if kept == nil {
		return out, nil
	}
	reader := kept.attempt()
	if reader == nil {
		return nil, unsettled(t, fmt.Sprintf("the body of the request is larger than %d bytes and was sent to another shard", keptBody))
	}
	out.Body = reader
	out.GetBody = func() (io.ReadCloser, error) {
		if again := kept.attempt(); again != nil {
			return again, nil
		}
		return nil, errSent
	}
	if t.Expect != nil && (r.ContentLength < 0 || r.ContentLength > keptBody) {
		out.Header.Set("Expect", "100-continue") // the shard refuses the request before it reads the body
	}
	return out, nil
}

// protocols are those to which Kubernetes upgrades connections. With others, such as another version of HTTP, a client could send requests
// whose headers are not cleaned, on a connection that was opened with the certificate of the proxy.
var protocols = []string{"websocket", "spdy/3.1"}

// CheckUpgrade returns an error if a request must not upgrade its connection.
func CheckUpgrade(r *http.Request) error {
	if protocol := r.Header.Get("Upgrade"); httpstream.IsUpgradeRequest(r) &&
		(len(r.Header.Values("Upgrade")) != 1 || !slices.Contains(protocols, strings.ToLower(protocol))) {
		return apierrors.NewBadRequest(fmt.Sprintf("connections are upgraded to %s, not to %q", strings.Join(protocols, " and "), protocol))
	}
	return nil
}
