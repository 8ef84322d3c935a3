package objectlimit

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxSeries is the maximum number of clusters in the metrics: a series for every cluster would cost more than the objects.
const maxSeries = 100

// nearlyFull reports whether a cluster has at least 90 % of its limit.
func nearlyFull(held, limit int64) bool { return limit > 0 && held*10 >= limit*9 }

// collector collects the clusters that are nearly full, of those that this server has counted.
type collector struct {
	metrics.BaseStableCollector
	limits       *Limits
	shard        string
	count, limit *metrics.Desc
}

// Register registers kcp_logicalcluster_object_count and kcp_logicalcluster_object_count_limit.
func (l *Limits) Register(register func(metrics.StableCollector) error, shard string) error {
	labels := []string{"shard", "cluster"}
	c := &collector{
		limits: l, shard: shard,
		count: metrics.NewDesc("kcp_logicalcluster_object_count", "Number of objects of a logical cluster that has 90 % of its limit or more.",
			labels, nil, metrics.ALPHA, ""),
		limit: metrics.NewDesc("kcp_logicalcluster_object_count_limit",
			"Limit of the number of objects of a logical cluster that has 90 % of it or more.",
			labels, nil, metrics.ALPHA, ""),
	}
	if err := register(c); err != nil {
		return fmt.Errorf("registering the metrics of object counts: %w", err)
	}
	return nil
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.count
	descriptions <- c.limit
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(all chan<- metrics.Metric) {
	for _, f := range c.limits.fullest() {
		all <- metrics.NewLazyConstMetric(c.count, metrics.GaugeValue, float64(f.held), c.shard, string(f.cluster))
		all <- metrics.NewLazyConstMetric(c.limit, metrics.GaugeValue, float64(f.limit), c.shard, string(f.cluster))
	}
}

type filled struct {
	cluster     logicalcluster.Name
	held, limit int64
}

// fullest returns the clusters that are nearly full, sorted by their share of the limit, largest first.
func (l *Limits) fullest() []filled {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(l.config.Clock.Now())
	var list []filled
	for cluster, t := range l.tallies {
		if f := (filled{cluster, t.held.Load(), l.of(cluster)}); nearlyFull(f.held, f.limit) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b filled) int {
		return cmp.Or(cmp.Compare(float64(b.held)/float64(b.limit), float64(a.held)/float64(a.limit)), cmp.Compare(a.cluster, b.cluster))
	})
	return list[:min(len(list), maxSeries)]
}
