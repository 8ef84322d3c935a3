package path

import (
	"context"
	"net/http"
	"time"

	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// resolution is when the path of a request was resolved. That happens before upstream starts the span of the request.
type resolution struct{ began, ended time.Time }

type resolutionKey struct{}

// WithTrace returns resolve(next), and measures how long resolve takes before it calls next, for WithSpan.
func WithTrace(next http.Handler, resolve func(http.Handler) http.Handler) http.Handler {
	h := resolve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if times, ok := r.Context().Value(resolutionKey{}).(*resolution); ok {
			times.ended = time.Now()
		}
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), resolutionKey{}, &resolution{began: time.Now()})))
	})
}

// WithSpan adds the resolution of the path to the trace of a request, and the logical cluster to its span. It must be called behind
// upstream's tracing filter.
func WithSpan(next http.Handler, pathOf func(logicalcluster.Name) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if spans.Recording(ctx) {
			if times, ok := ctx.Value(resolutionKey{}).(*resolution); ok {
				spans.Past(ctx, "Resolve path", times.began, times.ended)
			}
			if cluster, ok := logicalcluster.From(ctx); ok {
				spans.Set(ctx, spans.Cluster.String(cluster.String()))
				if !cluster.Wildcard {
					spans.Set(ctx, spans.Path.String(pathOf(cluster.Name)))
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
