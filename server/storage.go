package server

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/processors"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/options"
)

// openStorage connects to the etcd of a configuration, or starts the embedded etcd if that is not nil. fatal receives an error after which
// the server must stop.
func openStorage(ctx context.Context, config storagebackend.Config,
	embedded *etcd.Config) (backend *storage.Backend, fatal <-chan error, closeStorage func(), err error) {
	var client *clientv3.Client
	var room storage.Room
	stop := func() {}
	broken := make(chan error, 1)
	if embedded != nil {
		klog.FromContext(ctx).Info("Starting the embedded etcd", decisionlog.Directory, embedded.Directory)
		processors.WaitForDisk(etcd.DiskThreads)
		server, err := etcd.Start(ctx, *embedded)
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
		klog.FromContext(ctx).Info("Connecting to etcd", decisionlog.Servers, config.Transport.ServerList)
		client, err = storage.Dial(ctx, config.Transport, func(err error) {
			broken <- fmt.Errorf("%w: the objects in memory do not match etcd; restart the server", err)
		})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--etcd-servers: %w", err)
		}
	}
	backend = storage.NewBackend(client, config.Prefix, config.CompactionInterval)
	if room != nil {
		backend.SetRoom(room, authorization.IsServer)
	}
	return backend, broken, func() {
		backend.Close()
		_ = client.Close()
		stop()
	}, nil
}

// openShardStorage is openStorage for a shard.
func openShardStorage(ctx context.Context,
	opts options.Completed) (backend *storage.Backend, fatal <-chan error, closeStorage func(), err error) {
	var embedded *etcd.Config
	process := ""
	if opts.Embedded {
		embedded, process = &opts.EmbeddedEtcd, storage.Owner
	}
	backend, fatal, closeStorage, err = openStorage(ctx, opts.Generic.Etcd.StorageConfig, embedded)
	if err != nil || !opts.Sharding.Enabled() {
		return backend, fatal, closeStorage, err
	}
	backend.EnableFences()
	stopFences, err := backend.FollowFences(ctx, process)
	if err != nil {
		closeStorage()
		return nil, nil, nil, err
	}
	closeBackend := closeStorage // the returned function becomes closeStorage
	return backend, fatal, func() {
		stopFences()
		closeBackend()
	}, nil
}
