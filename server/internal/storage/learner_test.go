package storage

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// startLearner starts an etcd with a voter and a learner, and returns the addresses of both for clients.
func startLearner(t *testing.T) (voter, learner string) {
	t.Helper()
	client, peer := freePort(t), freePort(t)
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: filepath.Join(t.TempDir(), "etcd"), ClientPort: client, PeerPort: peer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	at := func(port int) url.URL { return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)} }
	config := embed.NewConfig()
	config.Name, config.Dir, config.LogLevel = "learner", filepath.Join(t.TempDir(), "learner"), "panic"
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{at(freePort(t))}, []url.URL{at(freePort(t))}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = config.ListenClientUrls, config.ListenPeerUrls
	added, err := server.Client().MemberAddAsLearner(t.Context(), []string{config.AdvertisePeerUrls[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	config.ClusterState = embed.ClusterStateFlagExisting
	for _, member := range added.Members {
		if member.Name != "" { // the other one
			config.InitialCluster = member.Name + "=" + member.PeerURLs[0] + ","
		}
	}
	config.InitialCluster += config.Name + "=" + config.AdvertisePeerUrls[0].String()
	joined, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(joined.Close)
	<-joined.Server.ReadyNotify()
	return at(client).Host, config.ListenClientUrls[0].Host
}

func TestCallsAndWatchesThatReachALearnerGoToAnotherMember(t *testing.T) {
	voter, learner := startLearner(t)
	for name, addresses := range map[string][]string{
		"a list of members": {learner, voter},
		"a Service":         {newRelay(t, learner, learner, learner, voter).Addr().String()}, // the first connection only shows that it is reachable
	} {
		t.Run(name, func(t *testing.T) {
			var servers []string
			for _, address := range addresses {
				servers = append(servers, "http://"+address)
			}
			client, err := Dial(t.Context(), storagebackend.TransportConfig{ServerList: servers}, unexpected(t))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			watch := client.Watch(t.Context(), "/key", clientv3.WithCreatedNotify())
			if created := <-watch; created.Err() != nil || !created.Created {
				t.Fatalf("the watch begins with %+v, %v", created, created.Err())
			}
			for i := range 50 {
				want := fmt.Sprint(name, i)
				put, err := client.Put(t.Context(), "/key", want)
				if err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
				if got, err := client.Get(t.Context(), "/key"); err != nil || string(got.Kvs[0].Value) != want {
					t.Fatalf("read %d: %+v, %v", i, got, err)
				}
				select {
				case told := <-watch:
					if len(told.Events) != 1 || told.Events[0].Kv.ModRevision != put.Header.Revision {
						t.Fatalf("the watch delivers %+v after revision %d", told, put.Header.Revision)
					}
				case <-time.After(time.Minute):
					t.Fatal("the watch delivers nothing")
				}
			}
		})
	}
}
