package server

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/server/etcd"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/storage"
)

// openStorage connects to the etcd of the options, which it starts if it is the embedded one. fatal delivers an error
// that ends an embedded etcd.
func openStorage(ctx context.Context, opts options.Completed) (backend *storage.Backend, fatal <-chan error, closeStorage func(), err error) {
	var client *clientv3.Client
	stop := func() {}
	if opts.Embedded {
		server, err := etcd.Start(ctx, opts.EmbeddedEtcd)
		if err != nil {
			return nil, nil, nil, err
		}
		client, fatal, stop = server.Client(), server.Err(), server.Stop
	} else {
		client, err = storage.Dial(ctx, opts.Generic.Etcd.StorageConfig.Transport)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--etcd-servers: %w", err)
		}
	}
	backend = storage.NewBackend(client, opts.Generic.Etcd.StorageConfig.Prefix, opts.Generic.Etcd.StorageConfig.CompactionInterval)
	return backend, fatal, func() {
		backend.Close()
		_ = client.Close()
		stop()
	}, nil
}
