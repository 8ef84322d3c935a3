package server

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/options"
)

// openStorage connects to the etcd of the options, and starts it if it is the embedded etcd. fatal receives an error after which the server
// must stop.
func openStorage(ctx context.Context,
	opts options.Completed) (backend *storage.Backend, fatal <-chan error, closeStorage func(), err error) {
	var client *clientv3.Client
	var room storage.Room
	stop := func() {}
	broken := make(chan error, 1)
	if opts.Embedded {
		klog.FromContext(ctx).Info("Starting the embedded etcd", decisionlog.Directory, opts.EmbeddedEtcd.Directory)
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
		klog.FromContext(ctx).Info("Connecting to etcd", decisionlog.Servers, opts.Generic.Etcd.StorageConfig.Transport.ServerList)
		client, err = storage.Dial(ctx, opts.Generic.Etcd.StorageConfig.Transport, func(err error) {
			broken <- fmt.Errorf("%w: the objects in memory do not match etcd; restart the server", err)
		})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--etcd-servers: %w", err)
		}
	}
	backend = storage.NewBackend(client, opts.Generic.Etcd.StorageConfig.Prefix, opts.Generic.Etcd.StorageConfig.CompactionInterval)
	if room != nil {
		backend.SetRoom(room, authorization.IsServer)
	}
	stopFences := func() {}
	if opts.Sharding.Enabled() {
		backend.EnableFences()
		if stopFences, err = backend.FollowFences(ctx); err != nil {
			backend.Close()
			_ = client.Close()
			stop()
			return nil, nil, nil, err
		}
	}
	return backend, broken, func() {
		stopFences()
		backend.Close()
		_ = client.Close()
		stop()
	}, nil
}
