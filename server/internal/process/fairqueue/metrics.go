package fairqueue

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// queueMetrics have no labels of tenants.
type queueMetrics struct {
	metrics.BaseStableCollector
	q        *Queue
	refusals *metrics.CounterVec
	states   []state
}

// state is a figure of the whole queue.
type state struct {
	desc  *metrics.Desc
	value func() int64
}

func newQueueMetrics(q *Queue) *queueMetrics {
	m := &queueMetrics{q: q, refusals: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kcp_logicalcluster_refused_requests_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests that were refused by 429, by kind (read, write, watch) and reason: cluster (it has too many open), waiting (too many " +
			"of it wait for hosts that it has named), " +
			"share (the tenant has its share of what the server may have in flight), timeout (no seat in time), memory (none in time).",
	}, []string{"kind", "reason"})}
	state := func(name, help string, value func() int64) {
		m.states = append(m.states, state{metrics.NewDesc("kcp_requests_"+name, help, nil, nil, metrics.ALPHA, ""), value})
	}
	state("queued", "Requests of tenants that wait for a seat.", func() int64 { return int64(q.queued) })
	state("seats_in_use", "Requests of tenants that have a seat: those that run.", func() int64 { return int64(q.root.seats) })
	state("waiting_for_hosts", "Requests that wait for hosts that tenants have named.", func() int64 {
		return int64(q.root.held[Read] + q.root.held[Write] + q.root.held[Watch])
	})
	state("memory_bytes", "Memory that requests of tenants have for what they carry and what they are answered, as estimated.",
		func() int64 { return q.root.bytes })
	return m
}

func (m *queueMetrics) refused(reason string, kind Kind) {
	m.refusals.WithLabelValues(kind.String(), reason).Inc()
}

// Register registers the metrics of the queue.
func (q *Queue) Register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error) error {
	if err := register(q.metrics.refusals); err != nil {
		return fmt.Errorf("metric of refused requests: %w", err)
	}
	if err := custom(q.metrics); err != nil {
		return fmt.Errorf("metrics of requests: %w", err)
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
