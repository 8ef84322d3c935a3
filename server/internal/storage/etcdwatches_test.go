package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

// recordedEvents is a Watcher with one event of each revision, whose watches begin at any of them.
type recordedEvents struct {
	clientv3.Watcher

	mu      sync.Mutex
	changed *sync.Cond
	events  []*clientv3.Event
	ended   bool
	open    int
	begun   []int64
}

func newRecordedEvents() *recordedEvents {
	r := &recordedEvents{}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// add adds an event with a value of a size, and returns it.
func (r *recordedEvents) add(size int) *clientv3.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("/key"), ModRevision: int64(len(r.events) + 1), Value: make([]byte, size)}}
	r.events = append(r.events, e)
	r.changed.Broadcast()
	return e
}

// end ends all watches with an error.
func (r *recordedEvents) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.changed.Broadcast()
}

func (r *recordedEvents) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	results, from := make(chan clientv3.WatchResponse), clientv3.OpGet(key, opts...).Rev()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	r.begun = append(r.begun, from)
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	go func() {
		defer close(results)
		defer stop()
		for {
			response, ok := r.next(ctx, &from)
			if !ok {
				return
			}
			select {
			case results <- response:
			case <-ctx.Done():
			}
		}
	}()
	return results
}

func (r *recordedEvents) next(ctx context.Context, from *int64) (clientv3.WatchResponse, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ctx.Err() == nil && !r.ended && *from > int64(len(r.events)) {
		r.changed.Wait()
	}
	switch {
	case ctx.Err() != nil || *from < 0:
	case *from <= int64(len(r.events)):
		e := r.events[*from-1]
		*from++
		return clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: e.Kv.ModRevision}, Events: []*clientv3.Event{e}}, true
	case *from > 0:
		*from = -1
		return clientv3.WatchResponse{Canceled: true, CancelReason: "ended"}, true
	}
	r.open--
	return clientv3.WatchResponse{}, false
}

func (r *recordedEvents) watches() (open int, begun []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open, r.begun
}

// sharing returns the set of watches of recorded events, and a function that begins one.
func sharing(t *testing.T) (*recordedEvents, *etcdWatches, func(ctx context.Context, key string, from int64) clientv3.WatchChan) {
	t.Helper()
	recorded := newRecordedEvents()
	w := newEtcdWatches(recorded, newBudget(1, 1, 1).ended)
	return recorded, w, func(ctx context.Context, key string, from int64) clientv3.WatchChan {
		return w.Watch(ctx, key, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithPrevKV())
	}
}

func TestWatchesThatShareEventsMissNoneWhereverTheyBegin(t *testing.T) {
	recorded, w, begin := sharing(t)
	const events, watches = 300, 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for n := range events {
		recorded.add(10)
		if n%(events/watches) != 0 {
			continue
		}
		from := max(1, int64(n-20)+rand.Int64N(40))
		all.Go(func() {
			mine := sharingEvents(ctx)
			results := begin(mine, "/", from)
			for want := from; want <= events; want++ {
				var response clientv3.WatchResponse
				select {
				case response = <-results:
				case <-time.After(30 * time.Second):
				}
				if len(response.Events) != 1 || response.Events[0].Kv.ModRevision != want {
					t.Errorf("a watch from %d got %v, want revision %d", from, response, want)
					return
				}
				decoded(mine, response.Events[0].Kv.Value)
			}
		})
	}
	all.Wait()
	open, begun := recorded.watches()
	t.Logf("%d watches of etcd for %d watches, %d are open", len(begun), watches, open)
	cancel()
	for open > 0 {
		open, _ = recorded.watches()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) > 0 {
		t.Errorf("%d shared watches are left", len(w.open))
	}
}

func TestWatchesOfTheSameKeysAreOneWatchOfEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, _, begin := sharing(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		value := recorded.add(10).Kv.Value
		recorded.add(10)
		var results []clientv3.WatchChan
		for _, from := range []int64{3, 3, 4, 1} {
			results = append(results, begin(sharingEvents(ctx), "/", from))
			synctest.Wait()
		}
		if first := <-results[3]; &first.Events[0].Kv.Value[0] != &value[0] {
			t.Error("the watch in the past got another event")
		}
		<-results[3] // it has caught up
		synctest.Wait()
		if open, begun := recorded.watches(); open != 1 || len(begun) != 2 {
			t.Errorf("%d watches of etcd are open, begun at %v", open, begun)
		}
		recorded.add(10)
		last := recorded.add(10)
		for i, skipped := range []int{1, 1, 0, 1} {
			for range skipped {
				<-results[i]
			}
			if got := <-results[i]; got.Events[0] != last {
				t.Errorf("watch %d got %v", i, got)
			}
		}
		other, plain := begin(sharingEvents(ctx), "/other", 5), begin(ctx, "/", 5)
		synctest.Wait()
		if open, _ := recorded.watches(); open != 3 {
			t.Errorf("%d watches of etcd are open, one for other keys and one that does not share", open)
		}
		recorded.end()
		for i, r := range append(results, other, plain) {
			got := <-r
			if _, open := <-r; got.Err() == nil || open {
				t.Errorf("watch %d got %v when etcd ended it", i, got)
			}
		}
		synctest.Wait()
		if open, _ := recorded.watches(); open != 0 {
			t.Errorf("%d watches of etcd are left", open)
		}
	})
}

// responses returns what a watch delivers until it waits, and whether it has ended.
func responses(ctx context.Context, results clientv3.WatchChan) (n int, ended bool) {
	for ; ; n++ {
		synctest.Wait()
		select {
		case response, ok := <-results:
			if !ok {
				return n, true
			}
			for _, e := range response.Events {
				decoded(ctx, e.Kv.Value)
			}
		default:
			return n, false
		}
	}
}

// The events of a new watch can arrive before anything else runs in this process.
func TestAWatchThatEndsAtOnceHasItsFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, w, _ := sharing(t)
		recorded.end()
		r := &etcdReader{watches: w, keys: etcdKeys{from: "/"}, next: 1, ctx: t.Context()}
		w.mu.Lock()
		e := w.begin(r)
		w.mu.Unlock()
		synctest.Wait()
		if !e.hasEnded() || r.at.Load() == nil {
			t.Errorf("ended: %t, the reader reads %v", e.hasEnded(), r.at.Load())
		}
	})
}

func TestAWatchThatIsFarBehindEndsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, w, begin := sharing(t)
		w.keys = 3 * checkEvery
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reads := sharingEvents(ctx)
		slow, quick := begin(sharingEvents(ctx), "/", 1), begin(reads, "/", 1)
		synctest.Wait() // both have entered
		for n := range 6 {
			recorded.add(checkEvery)
			if got, ended := responses(reads, quick); got != 1 || ended {
				t.Fatalf("the watch that reads got %d responses after event %d, ended: %t", got, n, ended)
			}
		}
		if _, ended := responses(ctx, slow); !ended {
			t.Error("the watch that is far behind goes on")
		}
	})
}

func TestTheKeysWithTheMostUndecodedBytesLoseWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, w, begin := sharing(t)
		w.all = 5 * checkEvery
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		most, less := begin(sharingEvents(ctx), "/", 1), begin(sharingEvents(ctx), "/other", 3)
		synctest.Wait()
		for range 5 {
			recorded.add(checkEvery)
			synctest.Wait()
		}
		if _, ended := responses(ctx, less); ended {
			t.Error("the watch with less ended")
		}
		if _, ended := responses(ctx, most); !ended {
			t.Error("the watch with the most goes on")
		}
	})
}

func TestEventsWaitUntilTheirWatchHasDecodedFormerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, _, begin := sharing(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mine := sharingEvents(ctx)
		results := begin(mine, "/", 1)
		large := recorded.add(mostDelivered)
		deleted := recorded.add(0)
		deleted.Type, deleted.PrevKv = clientv3.EventTypeDelete, &mvccpb.KeyValue{Value: make([]byte, mostDelivered)}
		recorded.add(10)
		<-results
		for n, value := range [][]byte{large.Kv.Value, deleted.PrevKv.Value} {
			synctest.Wait()
			select {
			case got := <-results:
				t.Errorf("event %d is delivered before the former one is decoded: %v", n+1, got)
			default:
			}
			decoded(mine, value)
			<-results
		}
	})
}

func TestWatchesWithDifferentSelectorsShareAWatchOfEtcd(t *testing.T) {
	s := configMaps(t)
	begin := create(t, s, "ours", "default", "first", nil).ResourceVersion
	var watches []watch.Interface
	for _, value := range []string{"red", "blue", "green"} {
		opts := storage.ListOptions{ResourceVersion: begin, Predicate: everything(), Recursive: true}
		opts.Predicate.Label = labels.SelectorFromSet(labels.Set{"color": value})
		w, err := s.Watch(tenant(t, "ours"), prefix, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches = append(watches, w)
	}
	for _, change := range []struct{ color, want string }{{"red", "red: ADDED"}, {"red", "red: MODIFIED"}, {"blue", "red: DELETED, blue: ADDED"}, {"", "blue: DELETED"}} {
		err := s.GuaranteedUpdate(in("ours"), prefix+"/default/first", &core.ConfigMap{}, false, nil,
			storage.SimpleUpdate(func(obj kruntime.Object) (kruntime.Object, error) {
				m, ok := obj.(*core.ConfigMap)
				if !ok {
					return nil, errors.New("no ConfigMap")
				}
				m.Labels, m.Data = map[string]string{"color": change.color}, map[string]string{"changed": fmt.Sprint(len(m.Data["changed"])) + m.Data["changed"]}
				return m, nil
			}), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, name := range []string{"red", "blue"} {
			if strings.Contains(change.want, name+":") {
				got = append(got, name+": "+string(next(t, watches[i]).Type))
			}
		}
		if strings.Join(got, ", ") != change.want {
			t.Errorf("when it becomes %q: %v, want %s", change.color, got, change.want)
		}
	}
	shared := backend.client.Client.Watcher.(*etcdWatches)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	found := 0
	for keys, e := range shared.open {
		if strings.Contains(keys.from, t.Name()) {
			found++
			if len(e.readers) != 3 {
				t.Errorf("the watch of %s has %d readers", keys.from, len(e.readers))
			}
		}
	}
	if found != 1 {
		t.Errorf("there are %d watches of etcd", found)
	}
}
