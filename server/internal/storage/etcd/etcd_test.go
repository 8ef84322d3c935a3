package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"golang.org/x/sync/errgroup"
)

// All watches of a client share a stream, in which cancellations of many watches meet the responses to them.
func TestAWatchContinuesWhenManyOthersEndTogether(t *testing.T) {
	ctx := t.Context()
	server, err := Start(ctx, Config{Directory: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()

	const rounds, others = 20, 500
	lasting := client.Watch(ctx, "/lasting")
	for round := range rounds {
		together, end := context.WithCancel(ctx)
		for n := range others {
			created := <-client.Watch(together, fmt.Sprintf("/others/%d", n), clientv3.WithCreatedNotify())
			if err := created.Err(); err != nil || !created.Created {
				t.Fatalf("watch %d of round %d begins with %+v, %v", n, round, created, err)
			}
		}
		end()
		if _, err := client.Put(ctx, "/lasting", fmt.Sprint(round)); err != nil {
			t.Fatal(err)
		}
		select {
		case told := <-lasting:
			if len(told.Events) != 1 || string(told.Events[0].Kv.Value) != fmt.Sprint(round) {
				t.Fatalf("write %d is reported as %+v", round, told)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("write %d is not reported", round)
		}
	}
}

func TestAWatchEndsWhenTheServerStops(t *testing.T) {
	server, err := Start(t.Context(), Config{Directory: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	defer client.Close()
	watch := client.Watch(t.Context(), "/key", clientv3.WithCreatedNotify())
	if created := <-watch; !created.Created {
		t.Fatalf("got %+v", created)
	}
	server.Stop()
	server.watches.running.Wait() // no handler is left
	select {
	case <-watch: // with an error, or closed
	case <-time.After(30 * time.Second):
		t.Fatal("the watch has not ended")
	}
}

// slowWatches are watches whose handlers end some time after their streams.
type slowWatches struct {
	pb.WatchServer
	begun chan struct{}
	ended atomic.Bool
	late  time.Duration
}

func (s *slowWatches) Watch(stream pb.Watch_WatchServer) error {
	close(s.begun)
	<-stream.Context().Done()
	time.Sleep(s.late)
	s.ended.Store(true)
	return nil
}

func TestAServerThatStopsWaitsForItsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for late, want := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
			h, slow := newWatchHandlers(), &slowWatches{begun: make(chan struct{}), late: late}
			server := awaitedWatches{slow, h}
			client := localWatches{adapter.WatchServerToWatchClient(server), h.stopped}
			if _, err := client.Watch(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-slow.begun
			before := time.Now()
			h.stop(unwatchTimeout)
			if slow.ended.Load() != want || time.Since(before) != min(late, unwatchTimeout) {
				t.Errorf("the server stops after %s, with the watch ended: %t", time.Since(before), slow.ended.Load())
			}
			if err := server.Watch(nil); !errors.Is(err, context.Canceled) {
				t.Errorf("a watch after the end returns %v", err)
			}
			h.running.Wait()
		}
	})
}

// Informers rely on the reported revision to know that they have everything.
func TestWatchesDeliverAllEventsAndThenTheirProgress(t *testing.T) {
	ctx := t.Context()
	server, err := Start(ctx, Config{Directory: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()

	const watches, writers, writes = 20, 8, 100
	unread := client.Watch(ctx, "/", clientv3.WithPrefix()) // a reader that is late must not delay others
	var all []clientv3.WatchChan
	for range watches {
		all = append(all, client.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(1)))
	}
	var group errgroup.Group
	for writer := range writers {
		group.Go(func() error {
			for n := range writes {
				if _, err := client.Put(ctx, fmt.Sprintf("/%d", writer), fmt.Sprint(n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, watch := range append(all, unread) {
		events, progress, late := 0, false, time.After(30*time.Second)
		for !progress {
			if events == writers*writes {
				if err := client.RequestProgress(ctx); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case told := <-watch:
				events += len(told.Events)
				progress = told.IsProgressNotify() && events == writers*writes
			case <-time.After(100 * time.Millisecond): // etcd does not answer while a watch of the stream is behind
			case <-late:
				t.Fatalf("watch %d delivers %d events, and no progress", i, events)
			}
		}
	}
}
