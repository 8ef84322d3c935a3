package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
)

// store is a list and a watch that the test controls.
type store struct {
	informer *informers.Informer
	events   *watch.FakeWatcher
	version  int
}

func newStore[L runtime.Object](t testing.TB, ctx context.Context, resource string, example runtime.Object, list L) *store {
	t.Helper()
	s := &store{events: watch.NewFake(), version: 10}
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return s.events, nil },
	}
	var err error
	if s.informer, err = informers.NewPacked(corev1alpha1.SchemeGroupVersion.WithResource(resource), example, lw, func(runtime.Object) {}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.informer.Run(ctx)
	}()
	t.Cleanup(func() { <-ended })
	<-s.informer.Synced()
	return s
}

// change sends an event, and waits until the informer has it.
func (s *store) change(kind watch.EventType, obj interface {
	metav1.Object
	runtime.Object
}) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	s.events.Action(kind, obj)
	for s.informer.Version() < uint64(s.version) {
		time.Sleep(time.Millisecond) // the reflector has no other signal
	}
}

// stand is a source with its informers, and a client.
type stand struct {
	*Source
	workspaces, clusters *store
	clock                *clocktesting.FakeClock
	url                  string
	shards               []Shard
	progress             func() error
}

func newStand(t testing.TB) *stand {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	version := metav1.ListMeta{ResourceVersion: "10"}
	st := &stand{
		workspaces: newStore(t, ctx, "workspaces", &tenancyv1alpha1.Workspace{}, &tenancyv1alpha1.WorkspaceList{ListMeta: version}),
		clusters:   newStore(t, ctx, "logicalclusters", &corev1alpha1.LogicalCluster{}, &corev1alpha1.LogicalClusterList{ListMeta: version}),
		clock:      clocktesting.NewFakeClock(time.Now()),
		progress:   func() error { return errors.New("no etcd") },
	}
	t.Cleanup(cancel)
	stopping := make(chan struct{})
	st.Source = NewSource(Config{
		Shard: "eu", Incarnation: "a", Clock: st.clock, Stopping: stopping,
		Workspaces: informers.Lister[*tenancyv1alpha1.Workspace]{Informer: st.workspaces.informer},
		Clusters:   informers.Lister[*corev1alpha1.LogicalCluster]{Informer: st.clusters.informer},
		Shards:     func() []Shard { return st.shards },
		Progress:   func(context.Context) error { return st.progress() },
	})
	server := httptest.NewServer(st.Source)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stopping) })
	st.url = server.URL
	return st
}

// Stream implements Streams.
func (st *stand) Stream(ctx context.Context, _, _ string, query url.Values) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, st.url+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return response.Body, nil
}

// client is a follower in the background.
type client struct {
	*follower
	events chan string
	ended  chan error
	cut    context.CancelFunc
}

func (st *stand) follow() *client { return st.followWith(st) }

func (st *stand) followWith(streams Streams) *client {
	events := make(chan string, 1000)
	c := &client{follower: &follower{streams: streams, shard: "eu", clock: clock.RealClock{}, sink: &recorder{signal: events}}, events: events}
	c.connectAgain()
	return c
}

func (c *client) connectAgain() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cut, c.ended = cancel, make(chan error, 1)
	go func() { c.ended <- c.connect(ctx) }()
}

// leave ends the connection.
func (c *client) leave() {
	c.cut()
	<-c.ended
}

// until returns the events up to one that contains text.
func (c *client) until(t *testing.T, text string) []string {
	t.Helper()
	var got []string
	for {
		select {
		case event := <-c.events:
			got = append(got, event)
			if strings.Contains(event, text) {
				return got
			}
		case err := <-c.ended:
			t.Fatalf("the connection ended: %v; got %q", err, got)
		case <-time.After(30 * time.Second):
			t.Fatalf("got %q, want %s", got, text)
		}
	}
}

// Each operation is a snapshot of 10,000 workspaces.
func BenchmarkSnapshot(b *testing.B) {
	const n = 10000
	st := newStand(b)
	for i := range n {
		cluster := fmt.Sprintf("%016d", i)
		st.workspaces.events.Add(workspace("root", "workspace-"+strconv.Itoa(i), cluster))
		st.clusters.events.Add(logicalCluster(cluster, 1))
	}
	st.clusters.change(watch.Added, logicalCluster("last", 1))
	st.workspaces.change(watch.Added, workspace("root", "last", "last"))
	for b.Loop() {
		sink := &ending{done: make(chan struct{})}
		f := &follower{streams: st, shard: "eu", sink: sink, clock: clock.RealClock{}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- f.connect(ctx) }()
		<-sink.done
		cancel()
		<-ended
	}
}

// ending is a sink that waits for a snapshot.
type ending struct {
	counter
	done chan struct{}
}

func (e *ending) End() error {
	close(e.done)
	return nil
}
