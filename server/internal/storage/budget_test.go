package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// tenant returns the context of a request of a user in a cluster.
func tenant(t *testing.T, cluster logicalcluster.Name, groups ...string) context.Context {
	return request.WithUser(logicalcluster.WithName(t.Context(), cluster), &user.DefaultInfo{Name: "carol", Groups: groups})
}

// large returns an object that takes about bytes of memory.
func large(version, bytes int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"data": strings.Repeat("x", bytes)}}
	u.SetResourceVersion(strconv.Itoa(version))
	return u
}

// source is a set of keys with the events of its stream.
type source struct {
	all     *streams
	keys    streamKeys
	version int
}

func newSource(all *streams) *source {
	return &source{all, streamKeys{storage: &clusterStorage{Interface: sameWatch{watch: watch.NewRaceFreeFake()}}}, 1}
}

func (s *source) follow(t *testing.T, ctx context.Context) *member {
	t.Helper()
	w, err := s.all.watch(ctx, s.keys, storage.ListOptions{ResourceVersion: strconv.Itoa(s.version), Predicate: everything()})
	if err != nil {
		t.Fatal(err)
	}
	return w.(*member)
}

// stream returns the stream of the keys, nil if it is not watched.
func (s *source) stream() *stream {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.all.open[s.keys]
}

// add appends an event to the stream.
func (s *source) add(bytes int) {
	s.version++
	if st := s.stream(); st != nil {
		st.append(watch.Event{Type: watch.Modified, Object: large(s.version, bytes)})
	}
}

// held returns how many bytes the stream holds.
func (s *source) held() int64 {
	st := s.stream()
	if st == nil {
		return 0
	}
	u := st.usage()
	if len(u.members) == 0 {
		return 0
	}
	return u.total()
}

// drained reports whether a watch ends after it is read.
func drained(t *testing.T, w watch.Interface) bool {
	t.Helper()
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return true
			}
		case <-time.After(100 * time.Millisecond):
			return false
		}
	}
}

func TestAWatchThatLeavesTooManyBytesUnreadIsEnded(t *testing.T) {
	s := newSource(newStreams(newBudget(4<<20, 1<<40, 1<<40)))
	stuck, reader := s.follow(t, tenant(t, "ours")), s.follow(t, tenant(t, "ours"))
	for !stuck.ended.Load() {
		s.add(1 << 20)
		next(t, reader)
		if s.version > 10 {
			t.Fatal("a watch keeps 10 MiB unread; want 4 at the most")
		}
	}
	if !drained(t, stuck) || reader.ended.Load() {
		t.Errorf("the watch that is not read ends: %t; the one that is read: %t", stuck.ended.Load(), reader.ended.Load())
	}
}

func TestTheLargestWatchesOfAClusterAreEndedTogether(t *testing.T) {
	all := newStreams(newBudget(1<<40, 8<<20, 1<<40))
	other := newSource(all)
	neighbour := other.follow(t, tenant(t, "theirs"))
	other.add(3 << 20)
	var sources []*source
	var watches []*member
	for range 4 { // as four watches with different selectors
		s := newSource(all)
		sources, watches = append(sources, s), append(watches, s.follow(t, tenant(t, "ours")))
	}
	for range 4 {
		for i, s := range sources {
			if !watches[i].ended.Load() {
				s.add(1 << 20)
			}
		}
	}
	all.budget.check()
	held, open := int64(0), 0
	for i, s := range sources {
		if !watches[i].ended.Load() {
			open++
			held += s.held()
		}
	}
	if held > 8<<20 || open == 0 || neighbour.ended.Load() {
		t.Errorf("%d of 4 watches hold %d bytes; want 8 MiB at the most; the watch of another cluster ended: %t", open, held, neighbour.ended.Load())
	}
}

func TestTheTotalOfAllWatchesIsLimited(t *testing.T) {
	all := newStreams(newBudget(1<<40, 1<<40, 8<<20))
	server, quick := newSource(all), newSource(all)
	privileged := server.follow(t, tenant(t, "system:admin", user.SystemPrivilegedGroup))
	server.add(4 << 20)
	reader := quick.follow(t, tenant(t, "reader"))
	var stuck []*member
	for i := range 10 {
		s := newSource(all)
		stuck = append(stuck, s.follow(t, tenant(t, logicalcluster.Name(fmt.Sprint("tenant-", i)))))
		s.add(1 << 20)
		quick.add(1 << 18)
		next(t, reader)
	}
	all.budget.check()
	open := 0
	for _, m := range stuck {
		if !m.ended.Load() {
			open++
		}
	}
	if open == 0 || open > 4 {
		t.Errorf("%d watches that hold 1 MiB each are open beside one that holds 4; want 4 at the most, and some", open)
	}
	if privileged.ended.Load() || reader.ended.Load() {
		t.Errorf("ended: the watch of the server: %t, the one that is read: %t", privileged.ended.Load(), reader.ended.Load())
	}
}

// The clusters of one tenant hold more in total than that of another tenant, but each of them holds less.
func TestTheTenantThatHoldsTheMostLosesWatches(t *testing.T) {
	all := newStreams(newBudget(1<<40, 1<<40, 8<<20))
	q := fairqueue.New(fairqueue.Config{Place: func(h fairqueue.Holder) fairqueue.Place {
		tenant, _, _ := strings.Cut(h.Cluster, "-")
		return fairqueue.Place{Account: tenant}
	}})
	follow := func(cluster string, size int) *member {
		ticket := &fairqueue.Ticket{}
		if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: cluster}, fairqueue.Watch, ticket); err != nil {
			t.Fatal(err)
		}
		s := newSource(all)
		m := s.follow(t, context.WithValue(tenant(t, logicalcluster.Name(cluster)), fairqueue.Key, ticket))
		s.add(size)
		return m
	}
	victim := follow("victim-0", 3<<20)
	var many []*member
	for i := range 6 {
		many = append(many, follow(fmt.Sprint("many-", i), 1<<20))
	}
	all.budget.check()
	open := 0
	for _, m := range many {
		if !m.ended.Load() {
			open++
		}
	}
	if victim.ended.Load() || open == 0 || open > 5 {
		t.Errorf("of the tenant with many clusters %d of 6 watches are open; the watch of the other one has ended: %t", open, victim.ended.Load())
	}
}

// writing is a client to which the server writes.
type writing struct {
	bytes int
	ended bool
}

func (w *writing) Pending() int { return w.bytes }
func (w *writing) GiveUp()      { w.ended = true }

func TestEventsThatAreBeingWrittenCount(t *testing.T) {
	s := newSource(newStreams(newBudget(1<<40, 4<<20, 1<<40)))
	client := &writing{}
	m := s.follow(t, WithConsumer(tenant(t, "ours"), client))
	s.add(3 << 20)
	next(t, m)
	if held := s.held(); held != 0 {
		t.Errorf("a watch holds %d bytes of an event that its client has read", held)
	}
	client.bytes = 1 << 20
	if held := s.held(); held < 5<<20 {
		t.Errorf("a watch holds %d bytes while an event of 3 MiB is being written as 1 MiB", held)
	}
	s.all.budget.check()
	if !m.ended.Load() || !client.ended {
		t.Errorf("a watch whose client does not read ended: %t, and the write with it: %t", m.ended.Load(), client.ended)
	}
}

func TestSerializedFormsOfSharedObjectsCount(t *testing.T) {
	s := newSource(newStreams(newBudget(1<<40, 1<<40, 1<<40)))
	reader, stuck := s.follow(t, tenant(t, "ours")), s.follow(t, tenant(t, "ours"))
	s.add(1 << 10)
	encode := func(_ kruntime.Object, w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	}
	if err := next(t, reader).Object.(kruntime.CacheableObject).CacheEncode("form", encode, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if held := s.held(); held < 1<<20 {
		t.Errorf("a stream holds %d bytes with a form of 1 MiB", held)
	}
	if !drained(t, stuck) && s.held() != 0 {
		t.Errorf("a stream holds %d bytes that all have read", s.held())
	}
}

func TestTheSizeOfAnObjectIsAboutItsMemory(t *testing.T) {
	for name, text := range map[string]string{
		"a long string":  `{"a":"` + strings.Repeat("x", 1<<20) + `"}`,
		"many strings":   `{"a":[` + strings.Repeat(`"abcdefghij",`, 20000) + `""]}`,
		"many numbers":   `{"a":[` + strings.Repeat(`1,`, 50000) + `1]}`,
		"empty objects":  `{"a":[` + strings.Repeat(`{},`, 20000) + `{}]}`,
		"small objects":  `{"a":[` + strings.Repeat(`{"name":"b","value":"c"},`, 10000) + `{}]}`,
		"many keys":      `{"a":{` + manyKeys(20000) + `}}`,
		"nested objects": strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat(`}`, 5000),
	} {
		var decoded *unstructured.Unstructured
		var all []int64
		for range 5 { // garbage of other tests may be collected at the same time
			decoded = &unstructured.Unstructured{}
			before := live()
			if err := json.Unmarshal([]byte(text), &decoded.Object); err != nil {
				t.Fatal(err)
			}
			all = append(all, live()-before)
		}
		slices.Sort(all)
		takes, said := all[len(all)/2], new(sizers).sizeOf(decoded)
		t.Logf("%s: %d bytes stored, %d in memory, %d said", name, len(text), takes, said)
		if said < takes*2/3 || said > takes*3/2 {
			t.Errorf("%s takes %d bytes of memory; sizeOf returns %d", name, takes, said)
		}
		runtime.KeepAlive(decoded)
	}
}

// live returns how many bytes of memory are in use.
func live() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"key-%d":"value",`, i)
	}
	return b.String() + `"last":1`
}
