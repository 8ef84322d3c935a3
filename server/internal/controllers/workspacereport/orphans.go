package workspacereport

import (
	"fmt"
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Orphans are the logical clusters of this shard whose Workspaces do not exist on other shards, or name another place. They are kept.
type Orphans struct {
	mu    sync.Mutex
	names map[logicalcluster.Name]bool
	count *metrics.Gauge
}

// RegisterOrphans registers the metric kcp_logicalcluster_orphans. Only the leader finds orphans.
func RegisterOrphans(register func(metrics.Registerable) error) (*Orphans, error) {
	o := &Orphans{names: map[logicalcluster.Name]bool{}, count: metrics.NewGauge(&metrics.GaugeOpts{
		Name: "kcp_logicalcluster_orphans",
		Help: "Number of logical clusters of the shard that no Workspace on another shard has. They are kept.", StabilityLevel: metrics.ALPHA,
	})}
	if err := register(o.count); err != nil {
		return nil, fmt.Errorf("registering the metric kcp_logicalcluster_orphans: %w", err)
	}
	return o, nil
}

// set records whether a cluster is an orphan, and reports whether that has changed.
func (o *Orphans) set(cluster logicalcluster.Name, orphan bool) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names[cluster] == orphan {
		return false
	}
	if orphan {
		o.names[cluster] = true
	} else {
		delete(o.names, cluster)
	}
	o.count.Set(float64(len(o.names)))
	return true
}
