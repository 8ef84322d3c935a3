package storage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// lossy is an etcd whose first response is lost.
type lossy struct {
	etcdkubernetes.Interface
	done  bool   // the write is applied nevertheless
	since func() // a change by another client before the retry
	err   error
	tries int
}

func answer[R any](l *lossy, do func() (R, error)) (R, error) {
	if l.tries++; l.tries > 1 {
		return do()
	}
	var none R
	var err error
	if l.done {
		_, err = do()
	}
	l.since()
	return none, errors.Join(l.err, err)
}

func (l *lossy) OptimisticPut(ctx context.Context, key string, value []byte, revision int64, options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	return answer(l, func() (etcdkubernetes.PutResponse, error) {
		return l.Interface.OptimisticPut(ctx, key, value, revision, options)
	})
}

func (l *lossy) OptimisticDelete(ctx context.Context, key string, revision int64, options etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	return answer(l, func() (etcdkubernetes.DeleteResponse, error) {
		return l.Interface.OptimisticDelete(ctx, key, revision, options)
	})
}

// store stores a value, and returns its revision.
func store(t *testing.T, key, value string) int64 {
	t.Helper()
	response, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

func remove(t *testing.T, key string) {
	t.Helper()
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func TestAWriteWithoutAResponseIsAppliedOnce(t *testing.T) {
	nothing := func(*testing.T, string) {}
	replaced := func(t *testing.T, key string) { store(t, key, "another") }
	for name, c := range map[string]struct {
		exists, done bool
		since        func(t *testing.T, key string)
		err          error
		lost         bool // the client gets the error for an unknown result
	}{
		"it was not done":                         {since: nothing},
		"it was done":                             {done: true, since: nothing},
		"a change was not done":                   {exists: true, since: nothing},
		"a change was done":                       {exists: true, done: true, since: nothing},
		"done, and replaced":                      {done: true, since: replaced, lost: true},
		"another client was first":                {since: replaced, lost: true},
		"a leader hands over":                     {since: nothing, err: status.Error(codes.Unknown, "raft proposal dropped")},
		"a stopping server breaks off":            {since: nothing, err: status.Error(codes.Unknown, "unexpected HTTP status code received from server: 200 (OK)")},
		"it took too long":                        {done: true, since: nothing, err: context.DeadlineExceeded},
		"the connection is gone":                  {since: nothing, err: status.Error(codes.Unavailable, "error reading from server: EOF")},
		"the response reports an invalid request": {since: nothing, err: rpctypes.ErrRequestTooLarge, lost: true},
		"the response reports a busy server":      {since: nothing, err: rpctypes.ErrTooManyRequests, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			key, revision, version := "/"+t.Name(), int64(0), int64(1)
			if c.exists {
				revision, version = store(t, key, "before"), 2
			}
			if c.err == nil {
				c.err = rpctypes.ErrTimeoutDueToLeaderFail
			}
			kv := &lossy{Interface: backend.client, done: c.done, since: func() { c.since(t, key) }, err: c.err}
			response, err := retryPut(t.Context(), kv, key, []byte("mine"), revision, etcdkubernetes.PutOptions{})
			if c.lost {
				if !errors.Is(err, c.err) || response.Succeeded {
					t.Errorf("got %+v, %v", response, err)
				}
				return
			}
			stored, getErr := client.Get(t.Context(), key)
			if err != nil || getErr != nil || len(stored.Kvs) != 1 {
				t.Fatalf("got %+v, %v; stored is %+v, %v", response, err, stored, getErr)
			}
			kvs := stored.Kvs[0]
			if !response.Succeeded || response.Revision != kvs.ModRevision || string(kvs.Value) != "mine" || kvs.Version != version {
				t.Errorf("got %+v; stored is %+v", response, kvs)
			}
		})
	}
}

func TestADeletionWithoutAResponseIsAppliedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		done  bool
		since func(t *testing.T, key string)
		lost  bool
		there bool
	}{
		"it was not done":       {since: func(*testing.T, string) {}},
		"it was done":           {done: true, since: func(*testing.T, string) {}},
		"another client did it": {since: remove},
		"created again":         {done: true, since: func(t *testing.T, key string) { store(t, key, "again") }, lost: true, there: true},
		"changed before":        {since: func(t *testing.T, key string) { store(t, key, "changed") }, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			key := "/" + t.Name()
			revision := store(t, key, "before")
			kv := &lossy{Interface: backend.client, done: c.done, since: func() { c.since(t, key) }, err: rpctypes.ErrLeaderChanged}
			response, err := retryDelete(t.Context(), kv, key, revision, etcdkubernetes.DeleteOptions{})
			if (err != nil) != c.lost || response.Succeeded == c.there {
				t.Errorf("got %+v, %v", response, err)
			}
			if stored, err := client.Get(t.Context(), key); err != nil || (len(stored.Kvs) == 1) != c.there {
				t.Errorf("stored is %+v, %v", stored, err)
			}
		})
	}
}

// lossyKV is an etcd whose first response to a transaction is lost.
type lossyKV struct {
	clientv3.KV
	*lossy
}

func (l lossyKV) Txn(ctx context.Context) clientv3.Txn { return lossyTxn{l.KV.Txn(ctx), l.lossy} }

type lossyTxn struct {
	clientv3.Txn
	*lossy
}

func (l lossyTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { return lossyTxn{l.Txn.If(cs...), l.lossy} }
func (l lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn { return lossyTxn{l.Txn.Then(ops...), l.lossy} }
func (l lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn { return lossyTxn{l.Txn.Else(ops...), l.lossy} }
func (l lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	return answer(l.lossy, l.Txn.Commit)
}

func TestATransactionWithoutAResponseIsAppliedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		done, taken, lost bool
	}{"it was not done": {}, "it was done": {done: true}, "another client was first": {taken: true, lost: true}} {
		t.Run(name, func(t *testing.T) {
			held := []put{{key: "/" + t.Name() + "/1", value: []byte("one")}, {key: "/" + t.Name() + "/2", value: []byte("two")}}
			since := func() {
				if c.taken {
					store(t, held[0].key, "another")
				}
			}
			kv := lossyKV{client.KV, &lossy{done: c.done, since: since, err: rpctypes.ErrLeaderChanged}}
			response, err := retryCommit(t.Context(), kv, held, nil)
			if (err != nil) != c.lost || response.Succeeded == c.lost {
				t.Fatalf("got %+v, %v", response, err)
			}
			stored, err := client.Get(t.Context(), held[1].key)
			if err != nil || (len(stored.Kvs) == 0) != c.lost || !c.lost && (stored.Kvs[0].Version != 1 || stored.Kvs[0].ModRevision != response.Revision) {
				t.Errorf("got %+v; stored is %+v, %v", response, stored.Kvs, err)
			}
		})
	}
}

// etcdMember is one of an etcd of three.
type etcdMember struct {
	*embed.Etcd
	close func()
}

// members starts an etcd of three, and returns them and a client.
func members(t *testing.T) ([]etcdMember, *clientv3.Client) {
	t.Helper()
	var configs []*embed.Config
	var cluster, endpoints []string
	for i := range 3 {
		config := embed.NewConfig()
		config.Name, config.Dir, config.LogLevel = fmt.Sprint("m", i), filepath.Join(t.TempDir(), "etcd"), "panic"
		peer, serving := loopback(t), loopback(t)
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{serving}, []url.URL{serving}
		configs, endpoints = append(configs, config), append(endpoints, serving.String())
		cluster = append(cluster, config.Name+"="+peer.String())
	}
	var started []etcdMember
	for _, config := range configs {
		config.InitialCluster = strings.Join(cluster, ",")
		member, err := embed.StartEtcd(config)
		if err != nil {
			t.Fatal(err)
		}
		closing := sync.OnceFunc(member.Close)
		t.Cleanup(closing)
		started = append(started, etcdMember{member, closing})
	}
	for _, member := range started {
		<-member.Server.ReadyNotify()
	}
	dialled, err := Dial(t.Context(), storagebackend.TransportConfig{ServerList: endpoints}, unexpected(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialled.Close() })
	return started, dialled
}

func loopback(t *testing.T) url.URL {
	t.Helper()
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
}

func leader(started []etcdMember) int {
	for ; ; time.Sleep(time.Millisecond) {
		for i, member := range started {
			if member.Server.Leader() == member.Server.MemberID() {
				return i
			}
		}
	}
}

func TestNoWriteFailsWhileTheLeaderOfEtcdChanges(t *testing.T) {
	started, dialled := members(t)
	kv := etcdkubernetes.Client{Client: dialled}
	var written atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			for ctx.Err() == nil {
				key := fmt.Sprintf("/written/%d", written.Load())
				created, err := retryPut(t.Context(), kv, key, []byte("created"), 0, etcdkubernetes.PutOptions{})
				if err != nil || !created.Succeeded {
					return fmt.Errorf("creating %s: %+v, %w", key, created, err)
				}
				changed, err := retryPut(t.Context(), kv, key, []byte("changed"), created.Revision, etcdkubernetes.PutOptions{})
				if err != nil || !changed.Succeeded {
					return fmt.Errorf("changing %s: %+v, %w", key, changed, err)
				}
				written.Add(1)
			}
			return nil
		}()
	}()
	more := func() {
		for until := written.Load() + 20; written.Load() < until; {
			select {
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
		}
	}
	for range 10 {
		more()
		from := leader(started)
		to := started[(from+1)%len(started)]
		if err := started[from].Server.MoveLeader(t.Context(), uint64(started[from].Server.MemberID()), uint64(to.Server.MemberID())); err != nil {
			t.Fatal(err)
		}
	}
	more()
	started[leader(started)].close()
	more()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	stored, err := dialled.Get(t.Context(), "/written/", clientv3.WithPrefix())
	if err != nil || stored.Count != written.Load() {
		t.Fatalf("%d of %d objects are there, %v", stored.Count, written.Load(), err)
	}
	for _, kv := range stored.Kvs {
		if kv.Version != 2 || string(kv.Value) != "changed" {
			t.Errorf("%s was written %d times, and is %s", kv.Key, kv.Version, kv.Value)
		}
	}
}
