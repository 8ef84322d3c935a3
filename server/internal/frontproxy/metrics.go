package frontproxy

import (
	"errors"
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kcplane/kcp/server/internal/frontproxy/forward"
	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// instruments are the metrics of a front proxy. No label has a value for each logical cluster or client.
type instruments struct {
	requests  *metrics.CounterVec
	duration  *metrics.HistogramVec
	overhead  *metrics.Histogram
	open      *metrics.Gauge
	markers   *metrics.CounterVec
	questions *metrics.CounterVec
	refused   *metrics.CounterVec
	reloads   *metrics.GaugeVec
}

// methods are the values of the label method. Clients can send others.
var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true}

func newInstruments() *instruments {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	return &instruments{
		requests: counter("kcp_front_proxy_requests_total", "Number of requests, by the shard that served them and the status. The shard is "+
			"empty for other backends, and for requests that the front proxy refused.", "shard", "code"),
		duration: metrics.NewHistogramVec(&metrics.HistogramOpts{Name: "proxy_request_duration_seconds",
			Help: "Time until the response is complete, by method and status.", Buckets: metrics.DefBuckets, StabilityLevel: metrics.ALPHA},
			[]string{"method", "code"}),
		overhead: metrics.NewHistogram(&metrics.HistogramOpts{Name: "kcp_front_proxy_overhead_seconds",
			Help:    "Time from the arrival of a request until it is sent to a shard.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5}, StabilityLevel: metrics.ALPHA}),
		open: metrics.NewGauge(&metrics.GaugeOpts{Name: "kcp_front_proxy_open_requests", Help: "Number of open requests, watches included.",
			StabilityLevel: metrics.ALPHA}),
		markers: counter("kcp_front_proxy_markers_total", "Number of requests that a shard refused because it does not hold the logical cluster "+
			"as the index says, by verdict.", "verdict"),
		questions: counter("kcp_front_proxy_questions_total", "Number of questions to shards about workspaces that the index does not have, by "+
			"result.", "result"),
		refused: counter("kcp_front_proxy_refused_requests_total", "Number of requests that the front proxy refused, by status.", "code"),
		reloads: metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "kcp_front_proxy_stale_file",
			Help: "1 if the last version of a file is invalid, so that the one before is in use.", StabilityLevel: metrics.ALPHA}, []string{"file"}),
	}
}

// register registers all metrics, and those of the index and of the shards.
func (i *instruments) register(register func(metrics.Registerable) error, custom func(metrics.StableCollector) error, x *index.Table,
	lags func() map[string]time.Duration) error {
	errs := []error{custom(newStateCollector(x, lags))}
	for _, m := range []metrics.Registerable{i.requests, i.duration, i.overhead, i.open, i.markers, i.questions, i.refused, i.reloads} {
		errs = append(errs, register(m))
	}
	return errors.Join(errs...)
}

func (i *instruments) answered(shard, method string, code int, took time.Duration) {
	status := strconv.Itoa(code)
	if !methods[method] {
		method = "other"
	}
	i.requests.WithLabelValues(shard, status).Inc()
	i.duration.WithLabelValues(method, status).Observe(took.Seconds())
}

func (i *instruments) marked(m tree.Marker) { i.markers.WithLabelValues(string(m.Verdict)).Inc() }

func (i *instruments) asked(err error) {
	result := "answered"
	if err != nil {
		result = "failed"
	}
	i.questions.WithLabelValues(result).Inc()
}

// stateCollector reads the index and the shards when metrics are collected.
type stateCollector struct {
	metrics.BaseStableCollector
	index *index.Table
	lags  func() map[string]time.Duration

	clusters, ignored, bytes, lag *metrics.Desc
}

func newStateCollector(x *index.Table, lags func() map[string]time.Duration) *stateCollector {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")
	}
	return &stateCollector{index: x, lags: lags,
		clusters: desc("indexed_logicalclusters", "Number of logical clusters in the index of the front proxy."),
		ignored:  desc("kcp_front_proxy_index_ignored_records", "Number of records of shards that the index cannot represent."),
		bytes:    desc("kcp_front_proxy_index_bytes", "Memory of the index."),
		lag:      desc("kcp_front_proxy_index_lag_seconds", "Age of the newest state of a shard in the index.", "shard"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *stateCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{c.clusters, c.ignored, c.bytes, c.lag} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *stateCollector) CollectWithStability(ch chan<- metrics.Metric) {
	stats := c.index.Stats()
	ch <- metrics.NewLazyConstMetric(c.clusters, metrics.GaugeValue, float64(stats.Clusters))
	ch <- metrics.NewLazyConstMetric(c.ignored, metrics.GaugeValue, float64(stats.Ignored))
	ch <- metrics.NewLazyConstMetric(c.bytes, metrics.GaugeValue, float64(stats.Bytes))
	for shard, lag := range c.lags() {
		ch <- metrics.NewLazyConstMetric(c.lag, metrics.GaugeValue, lag.Seconds(), shard)
	}
}

// targetName returns the value of the label shard.
func targetName(t *forward.Target) string {
	if t == nil {
		return ""
	}
	return t.Shard
}

func (i *instruments) refusedWith(code int) { i.refused.WithLabelValues(strconv.Itoa(code)).Inc() }

func (i *instruments) stale(file string, invalid bool) {
	value := 0.0
	if invalid {
		value = 1
	}
	i.reloads.WithLabelValues(file).Set(value)
}
