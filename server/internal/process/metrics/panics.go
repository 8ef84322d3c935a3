package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics"
)

// CountPanics registers kcp_panics_total, the number of panics of requests and controllers from which Kubernetes' libraries recovered. It
// must be called once, before requests and controllers run.
func CountPanics(register func(metrics.Registerable) error) error {
	count := metrics.NewCounter(&metrics.CounterOpts{
		Name:           "kcp_panics_total",
		Help:           "Number of panics from which the process recovered. Each is a bug; the log has its stack trace.",
		StabilityLevel: metrics.ALPHA,
	})
	if err := register(count); err != nil {
		return fmt.Errorf("registering the metric kcp_panics_total: %w", err)
	}
	runtime.PanicHandlers = append(runtime.PanicHandlers, func(_ context.Context, cause any) {
		if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			return // a handler ends a connection in this way
		}
		count.Inc()
	})
	return nil
}
