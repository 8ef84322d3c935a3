package server

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/options"
)

// openStorage connects to the etcd of the options, which it starts if it is the embedded one. fatal delivers an error with which the
// server cannot go on.
func openStorage(ctx context.Context,
	opts options.Completed) (backend *storage.Backend, fatal <-chan error, closeStorage func(), err error) {
	var client *clientv3.Client
	var room storage.Room
	stop := func() {}
	broken := make(chan error, 1)
	if opts.Embedded {
		server, err := etcd.Start(ctx, opts.EmbeddedEtcd)
		if err != nil {
			return nil, nil, nil, err
		}
		client, room, stop = server.Client(), server, server.Stop
		go func() {
			if err, ok := <-server.Err(); ok {
				broken <- fmt.Errorf("embedded etcd: %w", err)
			}
		}()
	} else {
		client, err = storage.Dial(ctx, opts.Generic.Etcd.StorageConfig.Transport, func(err error) {
			broken <- fmt.Errorf("%w: what this server knows is not what is stored, start it again", err)
		})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--etcd-servers: %w", err)
		}
	}
	backend = storage.NewBackend(client, opts.Generic.Etcd.StorageConfig.Prefix, opts.Generic.Etcd.StorageConfig.CompactionInterval)
	if room != nil {
		backend.SetRoom(room, authorization.IsServer)
	}
	return backend, broken, func() {
		backend.Close()
		_ = client.Close()
		stop()
	}, nil
}
