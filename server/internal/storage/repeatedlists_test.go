package storage

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// repeatingStore is a store of ConfigMaps that counts the requests to etcd.
type repeatingStore struct {
	storage.Interface
	*Backend
	requests int
}

func newRepeatingStore(t *testing.T) *repeatingStore {
	t.Helper()
	s := &repeatingStore{}
	counting := clientv3.NewCtxClient(t.Context())
	counting.KV, counting.Lease, counting.Watcher = requestsOf{client.KV, &s.requests}, client.Lease, client.Watcher
	s.Backend = NewBackend(counting, "", 0)
	t.Cleanup(s.Close)
	s.Interface = configMapsOf(t, s.Backend)
	return s
}

// askedBy returns the context of a request in a cluster.
func askedBy(t *testing.T, cluster string) context.Context {
	t.Helper()
	ctx, ticket := inQueue(t, queueOf(1<<30))
	t.Cleanup(ticket.Leave)
	return logicalcluster.WithName(ctx, logicalcluster.Name(cluster))
}

// anyVersion lists, and returns the names and the number of requests to etcd.
func (s *repeatingStore) anyVersion(ctx context.Context, t *testing.T, below string,
	change func(*storage.ListOptions)) (names, version string, requests int) {
	t.Helper()
	before, out := s.requests, &core.ConfigMapList{}
	opts := storage.ListOptions{ResourceVersion: "0", Predicate: everything(), Recursive: true}
	if change != nil {
		change(&opts)
	}
	if err := s.GetList(ctx, prefix+below, opts, out); err != nil {
		t.Fatal(err)
	}
	for i := range out.Items {
		names += " " + out.Items[i].Name
		out.Items[i].Name = "changed by a reader"
	}
	return strings.TrimSpace(names), out.ResourceVersion, s.requests - before
}

func TestAnUnchangedListOfAnyVersionIsNotReadAgain(t *testing.T) {
	s := newRepeatingStore(t)
	for i := range 3 {
		create(t, s, "a", "ns", fmt.Sprint("x", i), nil)
	}
	create(t, s, "b", "ns", "other", nil)
	ctx := askedBy(t, "a")
	version := ""
	for range 10 { // a slow machine may need more than repeatedTime for some of them
		for range 3 {
			names, at, requests := s.anyVersion(ctx, t, "/ns", nil)
			if names != "x0 x1 x2" || at == "" {
				t.Fatalf("the list has %q at %q", names, at)
			}
			if requests == 0 && at != version {
				t.Errorf("a repeated list has version %q, and the one before %q", at, version)
			}
			if version = at; requests == 0 {
				goto repeated
			}
		}
	}
	t.Fatal("no list is repeated")
repeated:
	for what, change := range map[string]func(*storage.ListOptions){
		"a current version": func(o *storage.ListOptions) { o.ResourceVersion = "" },
		"one page":          func(o *storage.ListOptions) { o.Predicate.Limit = 10 },
	} {
		if names, _, requests := s.anyVersion(ctx, t, "/ns", change); names != "x0 x1 x2" || requests == 0 {
			t.Errorf("%s: the list has %q after %d requests", what, names, requests)
		}
	}
	if names, _, _ := s.anyVersion(askedBy(t, "b"), t, "/ns", nil); names != "other" {
		t.Errorf("the list of another cluster has %q", names)
	}
	own := *s.Interface.(*clusterStorage)
	own.own = true
	opts := storage.ListOptions{ResourceVersion: "0", Predicate: everything(), Recursive: true}
	if own.mayRepeat(ctx, opts) || !s.Interface.(*clusterStorage).mayRepeat(in("a"), opts) {
		t.Error("lists of informers can be repeated, or those of administrators cannot")
	}
}

func TestAListOfAnyVersionHasWhatThisServerHasWritten(t *testing.T) {
	s := newRepeatingStore(t)
	ctx := askedBy(t, "a")
	want := ""
	check := func(what string) {
		t.Helper()
		for range 3 { // so that the list is repeated before the next write
			for _, below := range []string{"/ns", ""} {
				if names, _, _ := s.anyVersion(ctx, t, below, nil); names != want {
					t.Fatalf("after %s, the list of %q has %q, want %q", what, below, names, want)
				}
			}
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("x%02d", i)
		create(t, s, "a", "ns", name, nil)
		want = strings.TrimSpace(want + " " + name)
		check("creating")
	}
	obj := &core.ConfigMap{}
	err := s.Delete(in("a"), prefix+"/ns/x19", obj, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want = strings.TrimSuffix(want, " x19")
	check("deleting")
	transaction := &Transaction{}
	defer transaction.End()
	late := &core.ConfigMap{}
	late.Namespace, late.Name = "ns", "x99"
	if err := s.Create(transaction.Commit(in("a")), prefix+"/ns/x99", late, &core.ConfigMap{}, 0); err != nil {
		t.Fatal(err)
	}
	want += " x99"
	check("a transaction")
}

func TestARepeatedListReservesItsMemory(t *testing.T) {
	s := newRepeatingStore(t)
	for i := range 3 {
		name := fmt.Sprint("x", i)
		create(t, s, "a", "ns", name, map[string]string{"large": strings.Repeat("x", 100<<10)})
	}
	for range 100 {
		ctx := askedBy(t, "a")
		if _, _, requests := s.anyVersion(ctx, t, "/ns", nil); requests > 0 {
			continue
		}
		if taken := fairqueue.From(ctx).Taken(); taken < 300<<10 {
			t.Fatalf("it reserves %d bytes", taken)
		}
		return
	}
	t.Fatal("no list is repeated")
}

func TestTheMemoryOfRepeatedListsIsLimited(t *testing.T) {
	r := newRepeatedLists(newSizes(), &sizers{})
	large := core.ConfigMap{Data: map[string]string{"key": strings.Repeat("x", repeatedWeight/10)}}
	add := func(name string, items ...core.ConfigMap) collection {
		of := collection{prefix: "/" + name + "/"}
		for range 3 {
			r.add(of, 0, time.Now(), &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items})
		}
		return of
	}
	for i := range 100 {
		add(fmt.Sprint(i), large)
		if r.weight > repeatedWeight {
			t.Fatalf("the lists take %d bytes", r.weight)
		}
	}
	if len(r.lists) == 0 {
		t.Error("no list is kept")
	}
	for of, list := range r.lists {
		r.expire(of, weak.Make(list))
	}
	if r.weight != 0 {
		t.Errorf("%d bytes are left", r.weight)
	}
	if of := add("large", large, large, large); r.lists[of] != nil {
		t.Error("a list takes more than its share")
	}
}

func TestARemovedListIsGarbageAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no list expires
		r := newRepeatedLists(newSizes(), &sizers{})
		of := collection{prefix: "/x/"}
		add := func(changes uint32) (weak.Pointer[repeatedList], *time.Timer) {
			for range 3 {
				r.add(of, changes, time.Now(), &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
			}
			return weak.Make(r.lists[of]), r.lists[of].expiry
		}
		first, firstExpiry := add(0)
		if again, expiry := add(0); again != first || expiry != firstExpiry {
			t.Error("a valid list is replaced")
		}
		second, secondExpiry := add(1)
		runtime.GC()
		if first.Value() != nil || second.Value() == nil {
			t.Errorf("the replaced list is in memory: %t, the current one: %t", first.Value() != nil, second.Value() != nil)
		}
		if firstExpiry.Stop() {
			t.Error("the timer of the replaced list runs")
		}
		time.Sleep(repeatedTime)
		synctest.Wait()
		runtime.GC()
		if second.Value() != nil || len(r.lists) != 0 || r.weight != 0 || secondExpiry.Stop() {
			t.Error("a list is in memory after its time")
		}
	})
}

func TestRepeatedListsOfAClosedStorageAreForgotten(t *testing.T) {
	b := NewBackend(client, "", 0)
	t.Cleanup(b.Close)
	references := func(s *clusterStorage) (n int) {
		for of := range b.repeated.lists {
			if of.storage == s {
				n++
			}
		}
		for _, asked := range &b.repeated.asked {
			if asked.of.storage == s {
				n++
			}
		}
		return n
	}
	open := func(t *testing.T) *clusterStorage {
		s := configMapsOf(t, b).(*clusterStorage)
		for range 2 {
			b.repeated.add(collection{s, "/" + t.Name() + "/"}, 0, time.Now(), &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
		}
		if references(s) == 0 {
			t.Fatal("nothing refers to the storage")
		}
		return s
	}
	other := open(t)
	var closed *clusterStorage
	t.Run("closed", func(t *testing.T) { closed = open(t) })
	if references(closed) != 0 || references(other) == 0 {
		t.Errorf("%d references to the closed storage are left, and %d to the other one", references(closed), references(other))
	}
}

func TestAListThatChangesWhileARequestWaitsForMemoryIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatedLists(newSizes(), &sizers{})
		of := collection{storage: &clusterStorage{}, prefix: "/x/"}
		items := []core.ConfigMap{{Data: map[string]string{"key": strings.Repeat("x", 1<<20)}}}
		for range 3 {
			r.add(of, 0, time.Now(), &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items})
		}
		weight := r.lists[of].weight
		for _, c := range []struct {
			what, want string
			change     func()
		}{
			{"no change", "1", func() {}},
			{"a write", "2", func() { r.sizes.changed("/x/key") }},
		} {
			q := queueOf(3 * weight)
			_, first := inQueue(t, q)
			if err := first.Take(weight); err != nil {
				t.Fatal(err)
			}
			ctx, ticket := inQueue(t, q)
			list, done := &core.ConfigMapList{}, make(chan error)
			go func() {
				done <- r.list(ctx, of, list, func() error {
					if ticket.Taken() != 0 {
						t.Errorf("%s: reading begins with %d bytes", c.what, ticket.Taken())
					}
					list.ResourceVersion = "2"
					return nil
				})
			}()
			synctest.Wait()
			if list.ResourceVersion != "" {
				t.Fatalf("%s: the request does not wait for memory", c.what)
			}
			c.change()
			first.Leave()
			if err := <-done; err != nil || list.ResourceVersion != c.want {
				t.Errorf("%s: the list is of version %q, %v", c.what, list.ResourceVersion, err)
			}
			ticket.Leave()
		}
	})
}

func TestAFenceEndsTheRepetitionOfAList(t *testing.T) {
	s := newFencedStore(t)
	create(t, s.maps, "left", "n", "x", nil)
	ctx := askedBy(t, "left")
	list := func() (string, error) {
		out := &core.ConfigMapList{}
		err := s.maps.GetList(ctx, prefix+"/n", storage.ListOptions{ResourceVersion: "0", Predicate: everything(), Recursive: true}, out)
		return out.ResourceVersion, err
	}
	for range 3 {
		if _, err := list(); err != nil {
			t.Fatal(err)
		}
	}
	s.swap(t, "left", nil, leaving())
	if version, err := list(); !isLater(err) {
		t.Errorf("a fenced cluster has a list at %q: %v", version, err)
	}
	s.swap(t, "left", leaving(), nil)
	if _, err := list(); err != nil {
		t.Errorf("without the fence: %v", err)
	}
	known := *s.fences.state.Load()
	known.floors = map[logicalcluster.Name]int64{"left": s.now(t) + 1}
	s.fences.become(&known)
	if s.maps.(*clusterStorage).readable(ctx, uint64(s.now(t))) {
		t.Error("what was read before a cluster arrived is readable afterwards")
	}
}
