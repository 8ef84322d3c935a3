package storage

import (
	"context"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// Monitors returns what tells the size of the database, for upstream's metrics. Upstream's own would connect to the etcd
// of the options, of which an embedded one has no address.
func (b *Backend) Monitors() ([]metrics.Monitor, error) {
	return []metrics.Monitor{monitor{b.client.Client}}, nil
}

// monitor asks over a client that it does not own.
type monitor struct{ client *clientv3.Client }

// Monitor implements metrics.Monitor. Of several members of a cluster it asks any.
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
