// Package inflight lets requests in: as many as their logical cluster may have open, and in the order that is fair to all tenants. It
// decides on whose account a request is; server/internal/process/fairqueue decides what follows from that. Requests of administrators, and
// of the server itself, are not counted and never wait.
package inflight

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/component-base/metrics"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/expressions"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

const (
	// seatsPerProcessor are how many requests run on a processor at a time while several tenants are active.
	seatsPerProcessor = 1
	// patience is how long a request waits for its turn: upstream has it wait for a quarter of the time that it may take.
	patience = 15 * time.Second
	// perByte is how much memory a byte of a body takes until it is stored: itself, what it is decoded into, and what that is encoded into.
	perByte = 4
	// firstRead is how many bytes of a body have room before they arrive, whatever length the client announces.
	firstRead = 64 << 10
)

// Config of Limits. Zero is no limit.
type Config struct {
	// Requests are those that are answered and done with, Watches those that stay open, each of one logical cluster.
	Requests, Watches int
	// Reads and Writes are those of all clusters that may be in flight, AllWatches the watches of all that may be open.
	Reads, Writes, AllWatches int
	// Bytes of memory that bodies and answers may take.
	Bytes int64
	// MaxBody is the length of the longest body that is read.
	MaxBody int64
	// LongRunning returns whether a request stays open.
	LongRunning request.LongRunningRequestCheck
	Serializer  kruntime.NegotiatedSerializer
	// Clusters have owners.
	Clusters informers.Lister[*corev1alpha1.LogicalCluster]
}

// Limits are those of all logical clusters.
type Limits struct {
	config Config
	queue  *fairqueue.Queue
}

// New returns limits that nothing has reached.
func New(config Config) *Limits {
	queue := fairqueue.Config{
		Seats: seatsPerProcessor * runtime.GOMAXPROCS(0), Requests: config.Requests, Watches: config.Watches,
		Bytes: config.Bytes, Patience: patience, Place: accounts{config.Clusters}.place,
	}
	queue.Total = [...]int{fairqueue.Read: config.Reads, fairqueue.Write: config.Writes, fairqueue.Watch: config.AllWatches}
	return &Limits{config: config, queue: fairqueue.New(queue)}
}

// Register registers the metrics of the queue.
func (l *Limits) Register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error) error {
	return l.queue.Register(register, custom)
}

// WithLimits lets requests in when it is their turn, and refuses those of tenants that have too many open. It stands behind authorization:
// who is not let into a cluster takes nothing from it.
func (l *Limits) WithLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, counted := holderOf(r.Context())
		info, ok := request.RequestInfoFrom(r.Context())
		if !counted || !ok {
			next.ServeHTTP(w, r)
			return
		}
		x := &exchange{ResponseWriter: w, watch: l.config.LongRunning(r, info)}
		var sent *bytes.Buffer
		var err error
		_, span := spans.Start(r.Context(), "Admit in flight")
		if l.readsBody(r, x.watch) {
			if err = l.queue.Admit(r.Context(), h, kindOf(info, x.watch), &x.ticket); err == nil {
				defer x.ticket.Leave()
				if sent, err = l.readBody(r, &x.ticket); err == nil {
					err = x.ticket.Sit()
				}
			}
		} else if err = l.queue.Enter(r.Context(), h, kindOf(info, x.watch), &x.ticket); err == nil {
			defer x.ticket.Leave()
			err = l.takeBody(r, &x.ticket)
		}
		span.End(err)
		if err != nil {
			decisionlog.ForChange(r.Context(), logicalcluster.Name(h.Cluster)).Info("Request refused because of limits in flight",
				decisionlog.Cluster, h.Cluster, decisionlog.Verb, info.Verb, decisionlog.Reason, err)
			responsewriters.ErrorNegotiated(err, l.config.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		x.Context = r.Context()
		r = r.WithContext(x)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &body{r.Body, sent, x}
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(x), r)
	})
}

func kindOf(info *request.RequestInfo, watch bool) fairqueue.Kind {
	switch {
	case watch:
		return fairqueue.Watch
	case info.Verb == "get" || info.Verb == "list":
		return fairqueue.Read
	}
	return fairqueue.Write
}

// readsBody returns whether the body of a request is read before the request has a seat: however slowly it is sent, that takes nothing from
// others. Bodies for mounts are passed on without a seat.
func (l *Limits) readsBody(r *http.Request, watch bool) bool {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || watch {
		return false
	}
	_, mounted := mount.ClusterFrom(r.Context())
	return !mounted
}

// readBody reads the body of a request, up to the first byte that is too much. What fails, fails again for who reads the rest.
func (l *Limits) readBody(r *http.Request, t *fairqueue.Ticket) (*bytes.Buffer, error) {
	if err := l.takeBody(r, t); err != nil {
		return nil, err
	}
	length := r.ContentLength
	if length < 0 || length > firstRead {
		length = firstRead
	}
	sent := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	_, _ = sent.ReadFrom(io.LimitReader(r.Body, l.config.MaxBody+1))
	return sent, nil
}

// takeBody takes memory for the body of a request.
func (l *Limits) takeBody(r *http.Request, t *fairqueue.Ticket) error {
	length := r.ContentLength
	if length == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if length < 0 || length > l.config.MaxBody {
		length = l.config.MaxBody
	}
	return t.Take(length * perByte)
}

// holderOf returns on whose account a request is, false if it is on nobody's. Through a view it is on that of the provider, not of
// those whom the view shows. In root, where everybody comes, every user has an account, and the service
// accounts of a cluster, and the users of its issuers, have one.
func holderOf(ctx context.Context) (fairqueue.Holder, bool) {
	who, ok := request.UserFrom(ctx)
	if !ok || authorization.Administers(authorization.GroupsIn(ctx, who)) {
		return fairqueue.Holder{}, false
	}
	in, ok := virtual.Home(ctx)
	if !ok {
		in, ok = mount.ClusterFrom(ctx)
	}
	if !ok {
		addressed, found := logicalcluster.From(ctx)
		in, ok = addressed.Name, found
	}
	if in == "" || in == logicalcluster.Root {
		if from := who.GetExtra()[logicalcluster.UserExtraKey]; len(from) == 1 {
			return fairqueue.Holder{Cluster: from[0]}, ok
		}
		return fairqueue.Holder{Cluster: string(in), User: who.GetName()}, ok
	}
	return fairqueue.Holder{Cluster: string(in)}, ok
}

// exchange is a request with its ticket, and its context, and what writes the answer: one allocation for the three.
type exchange struct {
	context.Context
	http.ResponseWriter
	ticket fairqueue.Ticket
	// budget is what evaluating policies for the request may cost.
	budget expressions.Budget
	watch  bool
}

// Value implements context.Context.
func (x *exchange) Value(key any) any {
	switch key {
	case fairqueue.Key:
		return &x.ticket
	case expressions.Key:
		return &x.budget
	}
	return x.Context.Value(key)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Write implements http.ResponseWriter.
func (x *exchange) Write(content []byte) (int, error) {
	x.started()
	x.ticket.Lend()
	defer x.ticket.Return()
	return x.ResponseWriter.Write(content)
}

// Flush implements http.Flusher.
func (x *exchange) Flush() {
	x.started()
	x.ticket.Lend()
	defer x.ticket.Return()
	x.ResponseWriter.(http.Flusher).Flush()
}

// started gives the seat of a watch back with the first that is written.
func (x *exchange) started() {
	if x.watch {
		x.watch = false
		x.ticket.Started()
	}
}

// body is that of a request: what was read before it had a seat, if anything, and then the rest, which its client may take its time to
// send.
type body struct {
	io.ReadCloser
	sent *bytes.Buffer
	of   *exchange
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	if b.sent != nil {
		if n, err := b.sent.Read(into); err == nil {
			return n, nil
		}
		b.sent = nil // it is garbage from now on
	}
	b.of.ticket.Lend()
	defer b.of.ticket.Return()
	return b.ReadCloser.Read(into)
}
