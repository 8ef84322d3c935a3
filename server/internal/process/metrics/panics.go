package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics"
)

// CountPanics registers kcp_panics_total, the number of panics of requests and controllers that Kubernetes' libraries recovered from.
// It must be called once, before anything runs.
func CountPanics(register func(metrics.Registerable) error) error {
	count := metrics.NewCounter(&metrics.CounterOpts{
		Name:           "kcp_panics_total",
		Help:           "Number of panics that the process recovered from. Each is a defect: its stack is in the log.",
		StabilityLevel: metrics.ALPHA,
	})
	if err := register(count); err != nil {
		return fmt.Errorf("metric kcp_panics_total: %w", err)
	}
	runtime.PanicHandlers = append(runtime.PanicHandlers, func(_ context.Context, cause any) {
		if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			return // how a handler ends a connection
		}
		count.Inc()
	})
	return nil
}
