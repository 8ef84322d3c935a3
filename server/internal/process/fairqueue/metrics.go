package fairqueue

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// queueMetrics has no labels with names of tenants.
type queueMetrics struct {
	metrics.BaseStableCollector
	q        *Queue
	refusals *metrics.CounterVec
	states   []state
}

// state is a gauge of the whole queue.
type state struct {
	desc  *metrics.Desc
	value func() int64
}

func newQueueMetrics(q *Queue) *queueMetrics {
	m := &queueMetrics{q: q, refusals: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kcp_logicalcluster_refused_requests_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests refused with 429, by kind (read, write, watch) and reason: cluster (the logical cluster has too many open requests), " +
			"waiting (too many of its requests wait for hosts that it has configured), share (the tenant uses its share of the requests in " +
			"flight), timeout (no seat in time), memory (no memory in time).",
	}, []string{"kind", "reason"})}
	state := func(name, help string, value func() int64) {
		m.states = append(m.states, state{metrics.NewDesc("kcp_requests_"+name, help, nil, nil, metrics.ALPHA, ""), value})
	}
	state("queued", "Requests of tenants that wait for a seat.", func() int64 { return int64(q.queued) })
	state("seats_in_use", "Requests of tenants that have a seat and run.", func() int64 { return int64(q.root.seats) })
	state("waiting_for_hosts", "Requests that wait for hosts that tenants have configured.", func() int64 {
		return int64(q.root.held[Read] + q.root.held[Write] + q.root.held[Watch])
	})
	state("memory_bytes", "Estimated memory of the bodies and responses of requests of tenants.",
		func() int64 { return q.root.bytes })
	return m
}

func (m *queueMetrics) refused(reason string, kind Kind) {
	m.refusals.WithLabelValues(kind.String(), reason).Inc()
}

// Register registers the metrics of the queue.
func (q *Queue) Register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error) error {
	if err := register(q.metrics.refusals); err != nil {
		return fmt.Errorf("registering the metric of refused requests: %w", err)
	}
	if err := custom(q.metrics); err != nil {
		return fmt.Errorf("registering the metrics of requests: %w", err)
	}
	return nil
}

// DescribeWithStability implements metrics.StableCollector.
func (m *queueMetrics) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	for _, s := range m.states {
		descriptions <- s.desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (m *queueMetrics) CollectWithStability(all chan<- metrics.Metric) {
	for _, s := range m.states {
		m.q.mu.Lock()
		value := s.value()
		m.q.mu.Unlock()
		all <- metrics.NewLazyConstMetric(s.desc, metrics.GaugeValue, float64(value))
	}
}
