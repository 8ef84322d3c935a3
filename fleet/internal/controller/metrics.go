package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-base/metrics"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// The metrics have as many series as there are states, however many clusters and workspaces there are.
var (
	clustersMetric = metrics.NewDesc("kcp_fleet_clusters", "Number of attached clusters, by whether they are ready.",
		[]string{"ready"}, nil, metrics.ALPHA, "")
	assignmentsMetric = metrics.NewDesc("kcp_fleet_assignments",
		"Number of namespaces on clusters, by phase. Pending: the agent has not seen it.", []string{"phase"}, nil, metrics.ALPHA, "")
	waitingMetric = metrics.NewDesc("kcp_fleet_waiting_moves", "Number of namespaces that wait for their turn to move to another cluster.",
		nil, nil, metrics.ALPHA, "")
	tunnelsMetric = metrics.NewDesc("kcp_fleet_tunnels", "Number of clusters whose agent is connected for reading pods.",
		nil, nil, metrics.ALPHA, "")
	shardsMetric = metrics.NewDesc("kcp_fleet_shards", "Number of virtual workspaces, one of each shard, whose objects are watched.",
		nil, nil, metrics.ALPHA, "")
)

// countTimeout is the maximum time of a request for the metrics, so that the other metrics are read in time if kcp does not respond.
const countTimeout = 2 * time.Second

// collector counts what the fleet has when metrics are read.
type collector struct {
	metrics.BaseStableCollector
	fleet *fleet
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(out chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{clustersMetric, assignmentsMetric, waitingMetric, tunnelsMetric, shardsMetric} {
		out <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(out chan<- metrics.Metric) {
	gauge := func(d *metrics.Desc, n int, labels ...string) {
		out <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, float64(n), labels...)
	}
	clusters := &v1alpha1.ClusterList{}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	if err := c.fleet.provider.List(ctx, clusters); err != nil {
		ctrl.Log.Info("Clusters not counted", "error", err.Error())
	} else {
		ready := 0
		for i := range clusters.Items {
			if meta.IsStatusConditionTrue(clusters.Items[i].Status.Conditions, v1alpha1.ClusterReady) {
				ready++
			}
		}
		gauge(clustersMetric, ready, "true")
		gauge(clustersMetric, len(clusters.Items)-ready, "false")
	}
	phases := c.fleet.index.Phases()
	for _, phase := range []v1alpha1.AssignmentPhase{"", v1alpha1.AssignmentPlacing, v1alpha1.AssignmentReady, v1alpha1.AssignmentGone} {
		label := string(phase)
		if phase == "" {
			label = "Pending"
		}
		gauge(assignmentsMetric, phases[phase], label)
	}
	gauge(waitingMetric, c.fleet.moves.count())
	gauge(tunnelsMetric, c.fleet.tunnels.Count())
	gauge(shardsMetric, c.fleet.shards.count())
}
