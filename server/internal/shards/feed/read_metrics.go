package feed

import (
	"fmt"
	"time"

	"k8s.io/component-base/metrics"
)

// ReadMetrics are the metrics of what this shard reads of others.
type ReadMetrics struct {
	metrics.BaseStableCollector
	lag, remote, kept *metrics.Desc

	reader *Reader
	stored *Kept
}

// NewReadMetrics returns metrics with the label shard.
func NewReadMetrics(shard string, r *Reader, k *Kept) *ReadMetrics {
	desc := func(name, help string) *metrics.Desc {
		return metrics.NewDesc(name, help, nil, metrics.Labels{"shard": shard}, metrics.ALPHA, "")
	}
	return &ReadMetrics{
		reader: r, stored: k,
		lag:    desc("kcp_feed_read_lag_seconds", "Time since the last list, event or bookmark of the cache server, of the most silent kind."),
		remote: desc("kcp_feed_remote_objects", "Number of objects of other shards in memory."),
		kept:   desc("kcp_feed_kept_objects", "Number of stored objects of other shards, on which this shard depends."),
	}
}

// Register registers the metrics.
func (m *ReadMetrics) Register(custom func(metrics.StableCollector) error) error {
	if err := custom(m); err != nil {
		return fmt.Errorf("registering the metrics kcp_feed_read: %w", err)
	}
	return nil
}

// DescribeWithStability implements metrics.StableCollector.
func (m *ReadMetrics) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- m.lag
	ch <- m.remote
	ch <- m.kept
}

// CollectWithStability implements metrics.StableCollector.
func (m *ReadMetrics) CollectWithStability(ch chan<- metrics.Metric) {
	lag := m.reader.lag(m.reader.in.Clock.Now())
	ch <- metrics.NewLazyConstMetric(m.lag, metrics.GaugeValue, lag.Seconds())
	ch <- metrics.NewLazyConstMetric(m.remote, metrics.GaugeValue, float64(m.reader.in.Elsewhere.Len()))
	ch <- metrics.NewLazyConstMetric(m.kept, metrics.GaugeValue, float64(m.stored.stored()))
}

// lag returns the longest time for which nothing of a kind has arrived.
func (r *Reader) lag(now time.Time) time.Duration {
	var longest time.Duration
	for _, s := range r.sources {
		longest = max(longest, s.lag(now))
	}
	return longest
}
