// Package inflight limits the requests in flight of a logical cluster, and lets tenants take turns. It determines the account of a request;
// server/internal/process/fairqueue does the rest. Requests of administrators, and of the server itself, are not counted and never wait.
package inflight

import (
	"bytes"
	"context"
	"io"
	"net/http"
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
	"github.com/kcplane/kcp/server/internal/process/processors"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

const (
	// seatsPerProcessor is the number of requests that run on a processor at a time while several tenants are active.
	seatsPerProcessor = 1
	// patience is the maximum time that a request waits for its turn: upstream uses a quarter of the request timeout.
	patience = 15 * time.Second
	// perByte is the memory, in bytes, that a byte of a body takes until it is stored: the body, the decoded and the encoded object.
	perByte = 4
	// firstRead is the maximum size of the buffer that is allocated before the body arrives, whatever length the client announces.
	firstRead = 64 << 10
)

// Config of Limits. Zero means no limit.
type Config struct {
	// Requests is the maximum number of requests other than watches of one logical cluster, Watches of its watches.
	Requests, Watches int
	// Reads, Writes and AllWatches are the maximum numbers of open requests of all logical clusters.
	Reads, Writes, AllWatches int
	// Bytes is the maximum memory of bodies and responses.
	Bytes int64
	// MaxBody is the maximum length of a body.
	MaxBody int64
	// LongRunning reports whether a request stays open.
	LongRunning request.LongRunningRequestCheck
	Serializer  kruntime.NegotiatedSerializer
	// Clusters are read for their owners.
	Clusters informers.Lister[*corev1alpha1.LogicalCluster]
}

// Limits limits the requests of all logical clusters.
type Limits struct {
	config Config
	queue  *fairqueue.Queue
}

// New returns Limits without open requests.
func New(config Config) *Limits {
	queue := fairqueue.Config{
		Seats: seatsPerProcessor * processors.Count(), Requests: config.Requests, Watches: config.Watches,
		Bytes: config.Bytes, Patience: patience, Place: accounts{config.Clusters}.place,
	}
	queue.Total = [...]int{fairqueue.Read: config.Reads, fairqueue.Write: config.Writes, fairqueue.Watch: config.AllWatches}
	return &Limits{config: config, queue: fairqueue.New(queue)}
}

// Register registers the metrics of the queue.
func (l *Limits) Register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error) error {
	return l.queue.Register(register, custom)
}

// WithLimits runs requests when it is their turn, and refuses requests of tenants with too many open requests. It must be called after
// authorization: requests that are not authorized in a cluster do not count against it.
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

// readsBody reports whether the body of a request is read before the request has a seat: a slow body then takes nothing from others. Bodies
// for mounts are forwarded without a seat.
func (l *Limits) readsBody(r *http.Request, watch bool) bool {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || watch {
		return false
	}
	_, mounted := mount.ClusterFrom(r.Context())
	return !mounted
}

// readBody reads the body of a request, including the first byte beyond the limit. A read error occurs again for the reader of the rest.
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

// holderOf returns the holder that a request counts against, false if it is not counted. Through a view, it is the provider, not the
// consumers that the view shows. In root, which all users share, each user is a holder; the service accounts of a cluster, and the users of
// its issuers, are one holder.
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

// exchange is the ticket, the context and the response writer of a request, in one allocation.
type exchange struct {
	context.Context
	http.ResponseWriter
	ticket fairqueue.Ticket
	// budget limits the cost of evaluating policies for the request.
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

// started gives the seat of a watch back with the first write.
func (x *exchange) started() {
	if x.watch {
		x.watch = false
		x.ticket.Started()
	}
}

// body is the body of a request: first the part that was read before the request had a seat, then the rest, which the client may send
// slowly.
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
		b.sent = nil // release the memory
	}
	b.of.ticket.Lend()
	defer b.of.ticket.Return()
	return b.ReadCloser.Read(into)
}
