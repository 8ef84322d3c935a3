// Package metrics has metrics of the content of a server, in addition to upstream's metrics of requests. No label has a value for each
// logical cluster: a million of them cost no more than one.
package metrics

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
)

// phases are all values of the label phase.
var phases = []corev1alpha1.LogicalClusterPhase{
	corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady,
	corev1alpha1.LogicalClusterPhaseUnavailable, corev1alpha1.LogicalClusterPhaseInactive, corev1alpha1.LogicalClusterPhaseTerminating,
	corev1alpha1.LogicalClusterPhaseDeleting,
}

// CountLogicalClusters registers kcp_logicalcluster_count, the number of logical clusters of a shard in each phase, and updates it when
// clusters, the informer of LogicalClusters, changes.
func CountLogicalClusters(register func(metrics.Registerable) error, clusters *informers.Informer, shard string) error {
	count := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kcp_logicalcluster_count",
		Help:           "Number of logical clusters of the shard, by phase.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"shard", "phase"})
	if err := register(count); err != nil {
		return fmt.Errorf("registering the metric kcp_logicalcluster_count: %w", err)
	}
	for _, phase := range phases {
		count.WithLabelValues(shard, string(phase)).Set(0)
	}
	clusters.AddHandler(func(old, obj runtime.Object) {
		if old != nil && obj != nil && phaseOf(old) == phaseOf(obj) {
			return
		}
		if old != nil {
			count.WithLabelValues(shard, phaseOf(old)).Dec()
		}
		if obj != nil {
			count.WithLabelValues(shard, phaseOf(obj)).Inc()
		}
	})
	return nil
}

// phaseOf returns the phase of a LogicalCluster; Scheduling if it has none.
func phaseOf(obj runtime.Object) string {
	if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok && lc.Status.Phase != "" {
		return string(lc.Status.Phase)
	}
	return string(corev1alpha1.LogicalClusterPhaseScheduling)
}
