// Package inflight bounds how many requests and watches the server has open for one logical cluster, so that no tenant takes what
// the server can serve at a time from all others. Only what is open is known: a cluster without requests costs nothing.
package inflight

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/mount"
	"github.com/kcplane/kcp/server/virtual"
)

// retryAfter is when a client that was refused may try again, in seconds.
const retryAfter = 1

// Config of Limits. Zero is no limit.
type Config struct {
	// Requests are those that are answered and done with, Watches those that stay open.
	Requests, Watches int
	// LongRunning tells which are which.
	LongRunning request.LongRunningRequestCheck
	Serializer  runtime.NegotiatedSerializer
}

// Limits are those of all logical clusters.
type Limits struct {
	config  Config
	refused *metrics.CounterVec

	mu   sync.Mutex
	open map[holder]tally
}

// holder is on whose account a request is: a logical cluster, or a user of the one that all share.
type holder struct {
	cluster logicalcluster.Name
	user    string
}

// tally counts what a holder has open.
type tally struct{ requests, watches int32 }

// New returns limits that nobody has reached.
func New(config Config) *Limits {
	return &Limits{config: config, open: map[holder]tally{}, refused: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kcp_logicalcluster_refused_requests_total", Help: "Requests that were refused because their logical cluster has too many open, by kind: request or watch.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})}
}

// Register registers kcp_logicalcluster_refused_requests_total.
func (l *Limits) Register(register func(metrics.Registerable) error) error {
	if err := register(l.refused); err != nil {
		return fmt.Errorf("metric of refused requests: %w", err)
	}
	return nil
}

// WithLimits refuses requests for logical clusters that have too many open. It stands behind authorization: who is not let into a
// cluster takes nothing from it.
func (l *Limits) WithLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, counted := holderOf(r.Context())
		info, ok := request.RequestInfoFrom(r.Context())
		if !counted || !ok {
			next.ServeHTTP(w, r)
			return
		}
		watch := l.config.LongRunning(r, info)
		if err := l.enter(h, watch); err != nil {
			responsewriters.ErrorNegotiated(err, l.config.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		defer l.leave(h, watch)
		next.ServeHTTP(w, r)
	})
}

// holderOf returns on whose account a request is, false if it is on nobody's. Through a view it is on that of the provider, not of
// those whom the view shows. In root, where everybody comes, every user has an account, and the service accounts of a cluster one.
func holderOf(ctx context.Context) (holder, bool) {
	who, ok := request.UserFrom(ctx)
	if !ok || authorization.Administers(authorization.GroupsIn(ctx, who)) {
		return holder{}, false
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
		if from, is := authorization.ServiceAccountCluster(who); is {
			return holder{cluster: from}, ok
		}
		return holder{in, who.GetName()}, ok
	}
	return holder{cluster: in}, ok
}

// count returns the number that a request of a kind counts for, its limit, and what the kind is called.
func (l *Limits) count(t *tally, watch bool) (open *int32, limit int, kind string) {
	if watch {
		return &t.watches, l.config.Watches, "watch"
	}
	return &t.requests, l.config.Requests, "request"
}

func (l *Limits) enter(h holder, watch bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open[h]
	open, limit, kind := l.count(&t, watch)
	if limit > 0 && int(*open) >= limit {
		l.refused.WithLabelValues(kind).Inc()
		whose := "the logical cluster"
		if h.user != "" {
			whose = "the user, in a logical cluster that all share,"
		}
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d requests open of this kind (%s), and may have no more at a time", whose, *open, kind), retryAfter)
	}
	*open++
	l.open[h] = t
	return nil
}

func (l *Limits) leave(h holder, watch bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open[h]
	open, _, _ := l.count(&t, watch)
	*open--
	if t == (tally{}) {
		delete(l.open, h)
		return
	}
	l.open[h] = t
}
