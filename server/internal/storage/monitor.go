package storage

import (
	"context"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// Monitors returns monitors of the database size, for upstream's metrics. Upstream's own monitors would connect to the
// etcd in the options, but an embedded etcd has no address.
func (b *Backend) Monitors() ([]metrics.Monitor, error) {
	return []metrics.Monitor{monitor{b.client.Client}}, nil
}

// monitor uses a client that it does not own.
type monitor struct{ client *clientv3.Client }

// Monitor implements metrics.Monitor. It queries any member of the cluster.
func (m monitor) Monitor(ctx context.Context) (metrics.StorageMetrics, error) {
	endpoint := ""
	if all := m.client.Endpoints(); len(all) > 0 {
		endpoint = all[rand.IntN(len(all))]
	}
	status, err := m.client.Status(ctx, endpoint)
	if err != nil {
		return metrics.StorageMetrics{}, err
	}
	return metrics.StorageMetrics{Size: status.DbSize}, nil
}

// Close implements metrics.Monitor.
func (monitor) Close() error { return nil }
