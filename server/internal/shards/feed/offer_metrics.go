package feed

import (
	"fmt"
	"sync/atomic"

	"k8s.io/component-base/metrics"
)

// OfferMetrics are the metrics of what this shard offers. A process that is not the leader reports no objects and no lag.
type OfferMetrics struct {
	metrics.BaseStableCollector
	shard                string
	lag, objects, excess *metrics.Desc
	errors               *metrics.CounterVec

	offer atomic.Pointer[Offer]
}

// NewOfferMetrics returns metrics with the label shard.
func NewOfferMetrics(shard string) *OfferMetrics {
	desc := func(name, help string) *metrics.Desc {
		return metrics.NewDesc(name, help, nil, metrics.Labels{"shard": shard}, metrics.ALPHA, "")
	}
	return &OfferMetrics{
		shard:   shard,
		lag:     desc("kcp_feed_offer_lag_seconds", "Age of the oldest change of this shard that the cache server does not have."),
		objects: desc("kcp_feed_offered_objects", "Number of objects of this shard in the cache server."),
		excess: desc("kcp_feed_excess_objects", "Number of objects that are not offered to other shards because their logical cluster "+
			"exceeds the limits."),
		errors: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "kcp_feed_offer_errors_total", Help: "Number of failed attempts to offer objects to other shards.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"shard"}),
	}
}

// Register registers the metrics.
func (m *OfferMetrics) Register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error) error {
	if err := register(m.errors); err != nil {
		return fmt.Errorf("registering the metric kcp_feed_offer_errors_total: %w", err)
	}
	m.errors.WithLabelValues(m.shard).Add(0)
	if err := custom(m); err != nil {
		return fmt.Errorf("registering the metrics kcp_feed_offer: %w", err)
	}
	return nil
}

// DescribeWithStability implements metrics.StableCollector.
func (m *OfferMetrics) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- m.lag
	ch <- m.objects
	ch <- m.excess
}

// CollectWithStability implements metrics.StableCollector.
func (m *OfferMetrics) CollectWithStability(ch chan<- metrics.Metric) {
	var lag float64
	var objects, excess int
	if o := m.offer.Load(); o != nil {
		lag = o.pending.lag().Seconds()
		objects, excess = o.count()
	}
	ch <- metrics.NewLazyConstMetric(m.lag, metrics.GaugeValue, lag)
	ch <- metrics.NewLazyConstMetric(m.objects, metrics.GaugeValue, float64(objects))
	ch <- metrics.NewLazyConstMetric(m.excess, metrics.GaugeValue, float64(excess))
}

// follow makes the metrics show an Offer; nil means none.
func (m *OfferMetrics) follow(o *Offer) { m.offer.Store(o) }

func (m *OfferMetrics) failed() { m.errors.WithLabelValues(m.shard).Inc() }
