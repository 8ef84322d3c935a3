// Package database reads the stored data of a stopped server with an embedded etcd.
package database

import (
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// Open starts etcd with the data of a stopped server, and returns a client that works until the test ends.
func Open(t *testing.T, root string) *clientv3.Client {
	t.Helper()
	sockets := t.TempDir()
	listen := func(name string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(sockets, name)}}
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.QuotaBackendBytes = filepath.Join(root, "etcd-server", "data"), "panic", 64<<30
	config.ListenClientUrls, config.AdvertiseClientUrls = listen("c"), listen("c")
	config.ListenPeerUrls, config.AdvertisePeerUrls = listen("p"), listen("p")
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready")
	}
	client := v3client.New(server.Server)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
