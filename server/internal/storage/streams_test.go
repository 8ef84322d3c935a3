package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
	}
	return watch.Event{}
}

// nameIn returns the name of what an event delivers, shared or not.
func nameIn(t *testing.T, e watch.Event) string {
	t.Helper()
	object := e.Object
	if s, ok := object.(kruntime.CacheableObject); ok {
		object = s.GetObject()
	}
	m, ok := object.(*core.ConfigMap)
	if !ok {
		t.Fatalf("the event delivers a %T", object)
	}
	return m.Name
}

func TestWatchesOfTheSameKeysShareEvents(t *testing.T) {
	s := configMaps(t)
	begin := create(t, s, "ours", "default", "first", nil).ResourceVersion
	alone := follow(t, s, "theirs", begin)
	defer alone.Stop()
	one, two := follow(t, s, "ours", begin), follow(t, s, "ours", begin)
	create(t, s, "ours", "default", "second", nil)
	a, b := next(t, one), next(t, two)
	if a.Object != b.Object || nameIn(t, a) != "second" {
		t.Errorf("two watches delivered %v and %v", a, b)
	}
	encoded := 0
	encode := func(kruntime.Object, io.Writer) error { encoded++; return nil }
	for range 2 {
		if err := a.Object.(kruntime.CacheableObject).CacheEncode("form", encode, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	if encoded != 1 {
		t.Errorf("it was serialized %d times", encoded)
	}
	create(t, s, "theirs", "default", "third", nil)
	if e := next(t, alone); nameIn(t, e) != "third" {
		t.Errorf("the watch of another cluster delivered %v", e)
	} else if _, shares := e.Object.(kruntime.CacheableObject); shares {
		t.Error("a watch that is alone shares")
	}
	if err := s.Delete(in("ours"), prefix+"/default/second", &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if a, b := next(t, one), next(t, two); a.Type != watch.Deleted || a.Object != b.Object || nameIn(t, a) != "second" {
		t.Errorf("a deletion is delivered as %v and %v", a, b)
	}
	for _, w := range []watch.Interface{one, two, alone} {
		w.Stop()
		for range w.ResultChan() {
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		backend.streams.mu.Lock()
		left = 0
		for keys := range backend.streams.open {
			if keys.storage == s.(*clusterStorage) {
				left++
			}
		}
		backend.streams.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are left", left)
		}
	}
}

// follow watches the ConfigMaps of a cluster after a version; an empty version means from the beginning.
func follow(t *testing.T, s storage.Interface, cluster, version string) watch.Interface {
	t.Helper()
	return followAs(t, in(cluster), s, version)
}

func followAs(t *testing.T, ctx context.Context, s storage.Interface, version string) watch.Interface {
	t.Helper()
	opts := storage.ListOptions{ResourceVersion: version, Predicate: everything(), Recursive: true}
	if version == "" {
		initial := true
		opts.SendInitialEvents, opts.Predicate.AllowWatchBookmarks = &initial, true
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	w, err := s.Watch(ctx, prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAWatchMissesNoEventWhereverItBegins(t *testing.T) {
	for name, ctx := range map[string]context.Context{"of the server": in("ours"), "of a tenant": tenant(t, "ours")} {
		t.Run(name, func(t *testing.T) { missesNothing(t, ctx) })
	}
}

func missesNothing(t *testing.T, ctx context.Context) {
	s := configMaps(t)
	const objects, watches = 200, 60
	versions := make([]string, objects)
	names := make([]string, objects)
	followed := make([]watch.Interface, watches)
	begin := make([]int, watches)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range objects {
		names[i] = fmt.Sprintf("object-%03d", i)
		versions[i] = create(t, s, "ours", "default", names[i], nil).ResourceVersion
		if w := i * watches / objects; followed[w] == nil {
			begin[w] = random.IntN(i + 1) // sometimes older than the remembered events
			version := versions[begin[w]]
			if w%3 == 0 {
				begin[w], version = -1, ""
			}
			followed[w] = followAs(t, ctx, s, version)
		}
	}
	for w, watched := range followed {
		for i := begin[w] + 1; i < objects; i++ {
			e := next(t, watched)
			for e.Type == watch.Bookmark {
				e = next(t, watched)
			}
			if e.Type != watch.Added || nameIn(t, e) != names[i] {
				t.Fatalf("watch %d, which begins after %d, delivered %v %s instead of %s", w, begin[w], e.Type, nameIn(t, e), names[i])
			}
		}
		watched.Stop()
	}
}

func TestAnUnreadWatchIsEndedAndDoesNotBlockOthers(t *testing.T) {
	source := watch.NewFake()
	s := newStreams(newBudget(watchUnread, accountUnread, allUnread))
	keys := streamKeys{storage: &clusterStorage{Interface: sameWatch{watch: source}}}
	opts := storage.ListOptions{ResourceVersion: "1", Predicate: everything()}
	idle, err := s.watch(t.Context(), keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := s.watch(t.Context(), keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	const events = behind + checkEvery/leastSize // a check happens in time
	for i := range events {
		source.Add(&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(i + 2)}})
		next(t, reader)
	}
	delivered := 0
	for range idle.ResultChan() {
		delivered++
	}
	if delivered >= events {
		t.Error("a watch kept all unread events")
	}
	source.Stop()
	if e, open := <-reader.ResultChan(); open {
		t.Errorf("after the end came %v", e)
	}
}

// sameWatch is a storage with one watch.
type sameWatch struct {
	storage.Interface
	watch watch.Interface
}

func (s sameWatch) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return s.watch, nil
}

func TestATenantSeesExistingObjectsAndThenChanges(t *testing.T) {
	s := configMaps(t)
	const objects = 3 * firstObjects
	for i := range objects {
		create(t, s, "ours", "default", fmt.Sprintf("object-%03d", i), nil)
	}
	yes := true
	for name, opts := range map[string]storage.ListOptions{
		"from no version": {ResourceVersion: ""}, "from any version": {ResourceVersion: "0"},
		"from a list": {SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		opts.Recursive, opts.Predicate = true, everything()
		opts.Predicate.AllowWatchBookmarks = opts.SendInitialEvents != nil
		w, err := s.Watch(tenant(t, "ours"), prefix, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range objects {
			if e := next(t, w); e.Type != watch.Added || nameIn(t, e) != fmt.Sprintf("object-%03d", i) {
				t.Fatalf("%s: event %d is %v of %s", name, i, e.Type, nameIn(t, e))
			}
		}
		if opts.SendInitialEvents != nil {
			e := next(t, w)
			if marked, err := storage.HasInitialEventsEndBookmarkAnnotation(e.Object); e.Type != watch.Bookmark || !marked || err != nil {
				t.Errorf("%s: what exists ends with %v %v", name, e.Type, e.Object)
			}
		}
		changed := create(t, s, "ours", "default", "then "+name, nil)
		e := next(t, w)
		for e.Type == watch.Bookmark {
			e = next(t, w)
		}
		if nameIn(t, e) != changed.Name {
			t.Errorf("%s: then comes %v of %s", name, e.Type, nameIn(t, e))
		}
		w.Stop()
		if err := s.Delete(in("ours"), prefix+"/default/"+changed.Name, &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWatchOfAFutureVersionFails(t *testing.T) {
	s := configMaps(t)
	create(t, s, "ours", "default", "object", nil)
	yes := true
	w, err := s.Watch(tenant(t, "ours"), prefix, storage.ListOptions{
		ResourceVersion: "1000000000", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: &yes, Recursive: true, Predicate: everything(),
	})
	if err != nil {
		t.Fatal(err)
	}
	e := next(t, w)
	if status, ok := e.Object.(*metav1.Status); e.Type != watch.Error || !ok || !storage.IsTooLargeResourceVersion(&apierrors.StatusError{ErrStatus: *status}) {
		t.Errorf("the watch begins with %v %v", e.Type, e.Object)
	}
	if e, open := <-w.ResultChan(); open {
		t.Errorf("then comes %v", e)
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestExistingObjectsAreReadAtThePaceOfTheClient(t *testing.T) {
	s := configMaps(t)
	const objects, size = 200, 64 << 10
	for i := range objects {
		create(t, s, "ours", "default", fmt.Sprintf("object-%03d", i), map[string]string{"data": strings.Repeat("x", size)})
	}
	q := fairqueue.New(fairqueue.Config{Seats: 1, Patience: time.Minute, Place: func(fairqueue.Holder) fairqueue.Place { return fairqueue.Place{} }})
	ticket, gone := &fairqueue.Ticket{}, canceled(t)
	hasSeat := func() bool {
		other := &fairqueue.Ticket{}
		err := q.Enter(gone, fairqueue.Holder{Cluster: "theirs"}, fairqueue.Read, other)
		other.Leave()
		return err != nil
	}
	if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: "ours"}, fairqueue.Watch, ticket); err != nil {
		t.Fatal(err)
	}
	w := followAs(t, context.WithValue(tenant(t, "ours"), fairqueue.Key, ticket), s, "")
	defer w.Stop()
	next(t, w)
	ticket.Started()
	if !hasSeat() {
		t.Error("the watch has no seat while it lists")
	}
	m := w.(*member)
	deadline := time.Now().Add(30 * time.Second)
	for len(m.results) < buffered && time.Now().Before(deadline) { // all that fits
		runtime.Gosched()
	}
	for range 9 {
		next(t, w)
	}
	if held := m.at.Load(); held == nil || m.ended.Load() {
		t.Error("a watch is ended whose client reads")
	}
	backend.streams.budget.check()
	read := 10
	for e := next(t, w); e.Type != watch.Bookmark; e = next(t, w) {
		read++
	}
	if read != objects {
		t.Errorf("%d objects were delivered; want %d", read, objects)
	}
	create(t, s, "ours", "default", "later", nil)
	if next(t, w); hasSeat() {
		t.Error("the watch has a seat while it waits for events")
	}
}

// BenchmarkAStream measures the delivery of an event of an ordinary object to reading members.
func BenchmarkAStream(b *testing.B) {
	for _, members := range []int{1, 10, 100} {
		b.Run(strconv.Itoa(members), func(b *testing.B) {
			source := watch.NewFakeWithChanSize(16, false)
			s := newStreams(newBudget(watchUnread, accountUnread, allUnread))
			keys := streamKeys{storage: &clusterStorage{Interface: sameWatch{watch: source}}}
			var all []watch.Interface
			for range members {
				w, err := s.watch(b.Context(), keys, storage.ListOptions{ResourceVersion: "1", Predicate: everything()})
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, w)
			}
			object := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object", Namespace: "default", Labels: map[string]string{"a": "b"}}, Data: map[string]string{}}
			for i := range 20 {
				object.Data[strconv.Itoa(i)] = strings.Repeat("x", 100)
			}
			n := 1
			for b.Loop() {
				n++
				o := *object
				o.ResourceVersion = strconv.Itoa(n)
				source.Modify(&o)
				for _, w := range all {
					<-w.ResultChan()
				}
			}
		})
	}
}

// The watches of a tenant have one stream of etcd, whatever they select, and those of the server have another.
func TestTenantsHaveSeparateStreams(t *testing.T) {
	source := &laneWatch{}
	s := newStreams(newBudget(watchUnread, accountUnread, allUnread))
	follow := func(ctx context.Context, label string) string {
		keys := streamKeys{storage: &clusterStorage{Interface: source}, labels: label}
		w, err := s.watch(ctx, keys, storage.ListOptions{ResourceVersion: "1", Predicate: everything()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return source.lane
	}
	server := follow(tenant(t, "system:admin", user.SystemPrivilegedGroup), "")
	seen := map[string]bool{server: true}
	for i := range 100 {
		ctx := tenant(t, logicalcluster.Name(fmt.Sprint("tenant-", i)))
		lane := follow(ctx, "a")
		if again := follow(ctx, "b"); lane == server || again != lane {
			t.Errorf("watches of a tenant are in %q and %q, those of the server in %q", lane, again, server)
		}
		seen[lane] = true
	}
	if len(seen) < lanes/2 || len(seen) > lanes+1 {
		t.Errorf("100 tenants have %d streams", len(seen)-1)
	}
}

// laneWatch records the stream of the last watch.
type laneWatch struct {
	storage.Interface
	lane string
}

func (l *laneWatch) Watch(ctx context.Context, _ string, _ storage.ListOptions) (watch.Interface, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	l.lane = fmt.Sprint(sent["kcp-watches"])
	return watch.NewFake(), nil
}
