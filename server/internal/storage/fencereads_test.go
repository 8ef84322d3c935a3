package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

// watchFrom begins a watch of ConfigMaps.
func (s *fencedStore) watchFrom(t *testing.T, cluster string, version int64) (watch.Interface, error) {
	t.Helper()
	opts := storage.ListOptions{Predicate: everything(), Recursive: true, ResourceVersion: strconv.FormatInt(version, 10)}
	w, err := s.maps.Watch(in(cluster), prefix, opts)
	if err == nil {
		t.Cleanup(w.Stop)
	}
	return w, err
}

// ended returns the events of a watch until it ends.
func ended(t *testing.T, w watch.Interface) (events []string) {
	t.Helper()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return events
			}
			name := ""
			if m, ok := event.Object.(interface{ GetName() string }); ok {
				name = m.GetName()
			}
			events = append(events, string(event.Type)+" "+name)
		case <-time.After(30 * time.Second):
			t.Fatal("the watch does not end")
		}
	}
}

func (s *fencedStore) now(t *testing.T) int64 {
	t.Helper()
	revision, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int64(revision)
}

func isLater(err error) bool {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return apierrors.IsServiceUnavailable(err) && ok && seconds == 1
}

func TestNothingReadsAFencedCluster(t *testing.T) {
	for _, state := range []FenceState{FenceArriving, FenceLeaving, FenceSettling, FenceMoved} {
		t.Run(string(state), func(t *testing.T) {
			s := newFencedStore(t)
			for _, cluster := range []string{"left", "other"} {
				create(t, s.maps, cluster, "n", "x", nil)
			}
			before := s.now(t)
			open, err := s.watchFrom(t, "left", before)
			if err != nil {
				t.Fatal(err)
			}
			other, err := s.watchFrom(t, "other", before)
			if err != nil {
				t.Fatal(err)
			}
			fence := with(leaving(), state)
			s.swap(t, "left", nil, fence)
			if events := ended(t, open); len(events) > 0 {
				t.Errorf("the watch delivers %v", events)
			}
			reads := map[string]func(string) error{
				"get": func(cluster string) error {
					return s.maps.Get(in(cluster), prefix+"/n/x", storage.GetOptions{}, &core.ConfigMap{})
				},
				"list": func(cluster string) error {
					return s.maps.GetList(in(cluster), prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, &core.ConfigMapList{})
				},
				"watch": func(cluster string) error { _, err := s.watchFrom(t, cluster, before); return err },
				"unchanged": func(cluster string) error {
					return s.maps.GuaranteedUpdate(in(cluster), prefix+"/n/x", &core.ConfigMap{}, false, nil,
						storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) { return obj, nil }), nil)
				},
				"get by the server": func(cluster string) error {
					return s.slices.Get(in(cluster), "x", s.slices.newList())
				},
			}
			for name, read := range reads {
				if err := read("left"); !isLater(err) {
					t.Errorf("%s in the fenced cluster: %v", name, err)
				}
				if err := read("other"); err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%s in another cluster: %v", name, err)
				}
			}
			create(t, s.maps, "other", "n", "later", nil)
			if event := <-other.ResultChan(); event.Type != watch.Added {
				t.Errorf("the watch of another cluster got %v", event)
			}
			s.swap(t, "left", fence, nil)
			if err := reads["get"]("left"); err != nil {
				t.Errorf("without the fence: %v", err)
			}
		})
	}
}

// duringRead fences a cluster during a read, after etcd has responded.
type duringRead struct {
	storage.Interface
	fence func()
}

func (d duringRead) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	defer d.fence()
	return d.Interface.Get(ctx, key, opts, out)
}

func (d duringRead) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	defer d.fence()
	return d.Interface.GetList(ctx, key, opts, out)
}

func TestAReadThatAFenceOvertakesIsRefused(t *testing.T) {
	s := newFencedStore(t)
	create(t, s.maps, "left", "n", "x", nil)
	inner := s.maps.(*clusterStorage).Interface.(restricted)
	reads := behindFences{duringRead{inner.Interface.(behindFences).Interface, func() { s.swap(t, "left", nil, leaving()) }}, &s.fences.knownFences}
	if err := reads.Get(in("left"), prefix+"/left/n/x", storage.GetOptions{}, &core.ConfigMap{}); !isLater(err) {
		t.Errorf("get: %v", err)
	}
	s.swap(t, "left", leaving(), nil)
	if err := reads.GetList(in("left"), prefix+"/left", storage.ListOptions{Predicate: everything(), Recursive: true}, &core.ConfigMapList{}); !isLater(err) {
		t.Errorf("list: %v", err)
	}
}

func TestAWriteBeforeAFenceIsReportedAsDone(t *testing.T) {
	s := newFencedStore(t)
	inner := s.maps.(*clusterStorage).Interface.(restricted).Interface.(behindFences)
	err := inner.write(in("a"), func(ctx context.Context) error {
		defer s.swap(t, "a", nil, leaving())
		return inner.Interface.Create(ctx, prefix+"/a/n/x", configMap("x", ""), nil, 0)
	})
	if err != nil {
		t.Errorf("written before the fence: %v", err)
	}
	unknown := errors.New("the result is unknown")
	if err := inner.write(in("a"), func(context.Context) error { return unknown }); !errors.Is(err, unknown) {
		t.Errorf("an unknown result becomes %v", err)
	}
}

func TestAHalfCopiedClusterIsInvisible(t *testing.T) {
	c := newCopied(t)
	s := c.destination
	for _, name := range []string{"a", "b"} {
		create(t, c.origin.maps, "moving", "n", name, nil)
	}
	create(t, s.maps, "resident", "n", "r", nil)
	before := s.now(t)
	all, err := s.watchFrom(t, "*", before)
	if err != nil {
		t.Fatal(err)
	}
	c.begin(t)
	create(t, s.maps, "resident", "n", "later", nil)
	if found := list(t, s.maps, "*", ""); !slices.Equal(found, []string{"resident|n/later", "resident|n/r"}) {
		t.Errorf("a list of all clusters during the copy: %v", found)
	}
	initial, err := s.watchFrom(t, "*", 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if event := <-initial.ResultChan(); event.Object.(interface{ GetName() string }).GetName() != "later" &&
			event.Object.(interface{ GetName() string }).GetName() != "r" {
			t.Errorf("a watch of all clusters got %v", event)
		}
	}

	settling := with(c.arriving, FenceSettling)
	s.swap(t, "moving", c.arriving, settling)
	if events := ended(t, all); !slices.Equal(events, []string{"ADDED later"}) {
		t.Errorf("the watch of all clusters got %v", events)
	}
	if err := s.maps.GetList(in("*"), prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, &core.ConfigMapList{}); !isLater(err) {
		t.Errorf("a list of all clusters while one appears: %v", err)
	}
	if _, err := s.watchFrom(t, "*", before); !isLater(err) {
		t.Errorf("a watch of all clusters while one appears: %v", err)
	}
	published, err := c.to.Publish(in("moving"), settling, before, func(object []byte) ([]byte, error) { return object, nil })
	if err != nil {
		t.Fatal(err)
	}
	s.known(t, published)
	if found := list(t, s.maps, "*", ""); len(found) != 4 {
		t.Errorf("a list of all clusters: %v", found)
	}
	for _, cluster := range []string{"*", "moving"} {
		if _, err := s.watchFrom(t, cluster, published-1); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch of cluster %s from before: %v", cluster, err)
		}
		if _, err := s.watchFrom(t, cluster, published); err != nil {
			t.Errorf("a watch of cluster %s from then on: %v", cluster, err)
		}
	}
	if _, err := s.watchFrom(t, "resident", before); err != nil {
		t.Errorf("a watch of another cluster from before: %v", err)
	}
}

func TestVersionsOfAnotherStoreHaveExpired(t *testing.T) {
	c := newCopied(t)
	for n := range 5 {
		create(t, c.origin.maps, "moving", "n", fmt.Sprint("x", n), nil)
	}
	page := &core.ConfigMapList{}
	limited := everything()
	limited.Limit = 2
	if err := c.origin.maps.GetList(in("moving"), prefix, storage.ListOptions{Predicate: limited, Recursive: true}, page); err != nil || page.Continue == "" {
		t.Fatal(page.Continue, err)
	}
	c.begin(t)
	published := c.publish(t)
	s := c.destination.maps
	c.destination.swap(t, "other", nil, leaving()) // the fence of another cluster changes nothing
	version, err := strconv.ParseInt(page.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.destination.watchFrom(t, "moving", version); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: %v", err)
	}
	rest := limited
	rest.Continue = page.Continue
	for name, opts := range map[string]storage.ListOptions{
		"continue": {Predicate: rest, Recursive: true}, "version": {Predicate: everything(), Recursive: true, ResourceVersion: page.ResourceVersion},
	} {
		if err := s.GetList(in("moving"), prefix, opts, &core.ConfigMapList{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Get(in("moving"), prefix+"/n/x1", storage.GetOptions{ResourceVersion: page.ResourceVersion}, &core.ConfigMap{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("get: %v", err)
	}
	for _, version := range []string{"", "0", strconv.FormatInt(published, 10)} {
		found := &core.ConfigMapList{}
		opts := storage.ListOptions{Predicate: everything(), Recursive: true, ResourceVersion: version}
		if err := s.GetList(in("moving"), prefix, opts, found); err != nil || len(found.Items) != 5 {
			t.Errorf("version %q: %d objects, %v", version, len(found.Items), err)
		}
	}
}

func TestAMovedClusterDisappearsWithoutDeletions(t *testing.T) {
	s := newFencedStore(t)
	copies := s.Copies(nil)
	create(t, s.maps, "left", "n", "x", nil)
	create(t, s.maps, "resident", "n", "r", nil)
	before := s.now(t)
	all, err := s.watchFrom(t, "*", before)
	if err != nil {
		t.Fatal(err)
	}
	s.swap(t, "left", nil, leaving())
	if found := list(t, s.maps, "*", ""); len(found) != 2 {
		t.Errorf("a list of all clusters before the commit: %v", found)
	}
	settling, moved := with(leaving(), FenceSettling), with(leaving(), FenceMoved)
	s.swap(t, "left", leaving(), settling)
	s.swap(t, "left", settling, moved)
	if found := list(t, s.maps, "*", ""); !slices.Equal(found, []string{"resident|n/r"}) {
		t.Errorf("a list of all clusters before the remains are deleted: %v", found)
	}
	later, err := s.watchFrom(t, "*", s.now(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := copies.Clear(in("left"), moved); err != nil {
		t.Fatal(err)
	}
	create(t, s.maps, "resident", "n", "mark", nil)
	if events := ended(t, all); len(events) > 0 {
		t.Errorf("a watch from before got %v", events)
	}
	if event := <-later.ResultChan(); event.Type != watch.Added {
		t.Errorf("a watch from afterwards got %v", event)
	}
	if _, err := s.watchFrom(t, "*", before); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch that resumes: %v", err)
	}
}

// A later fence replaces that of a cluster that has moved, and a process reads the fences again when it was cut off.
func TestAVersionThatHasExpiredStaysSo(t *testing.T) {
	s := newFencedStore(t)
	create(t, s.maps, "left", "n", "x", nil)
	before := s.now(t)
	settling, moved := with(leaving(), FenceSettling), with(leaving(), FenceMoved)
	s.swap(t, "left", nil, leaving())
	s.swap(t, "left", leaving(), settling)
	s.swap(t, "left", settling, moved)
	again := with(leaving(), FenceArriving)
	again.Epoch++
	s.swap(t, "left", moved, again)
	if _, err := s.watchFrom(t, "*", before); !apierrors.IsResourceExpired(err) {
		t.Errorf("after another fence: %v", err)
	}
	p := &process{backend: s.Backend, key: s.fences.processes + "again"}
	if err := p.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.watchFrom(t, "*", before); !apierrors.IsResourceExpired(err) {
		t.Errorf("after the fences were read again: %v", err)
	}
}

func TestAListDuringWhichAClusterDisappearsHasExpired(t *testing.T) {
	s := newFencedStore(t)
	create(t, s.maps, "left", "n", "x", nil)
	s.swap(t, "left", nil, leaving())
	inner := s.maps.(*clusterStorage).Interface.(restricted).Interface.(behindFences)
	reads := behindFences{duringRead{inner.Interface, func() {
		settling := with(leaving(), FenceSettling)
		s.swap(t, "left", leaving(), settling)
		s.swap(t, "left", settling, with(leaving(), FenceMoved))
	}}, &s.fences.knownFences}
	err := reads.GetList(in("*"), prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, &core.ConfigMapList{})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
}

func TestAClusterIsCreatedAgainWhereOneHasMovedAway(t *testing.T) {
	s := newFencedStore(t)
	copies := s.Copies(nil)
	create(t, s.maps, "left", "n", "former", nil)
	create(t, s.maps, "resident", "n", "r", nil)
	settling, moved := with(leaving(), FenceSettling), with(leaving(), FenceMoved)
	s.swap(t, "left", nil, leaving())
	if err := copies.Reopen(in("left"), leaving(), "created"); err == nil {
		t.Error("a cluster that has not left is deleted")
	}
	s.swap(t, "left", leaving(), settling)
	s.swap(t, "left", settling, moved)
	before := s.now(t)
	all, err := s.watchFrom(t, "*", before)
	if err != nil {
		t.Fatal(err)
	}
	later := with(moved, FenceMoved)
	later.Epoch++
	if err := copies.Reopen(in("left"), later, "created"); !IsFenceChanged(err) {
		t.Errorf("behind the fence of another migration: %v", err)
	}
	if err := copies.Reopen(in("left"), moved, "created"); err != nil {
		t.Fatal(err)
	}
	create(t, s.maps, "left", "n", "new", nil)
	if events := ended(t, all); len(events) > 0 {
		t.Errorf("a watch from before got %v", events)
	}
	if found := list(t, s.maps, "*", ""); !slices.Equal(found, []string{"left|n/new", "resident|n/r"}) {
		t.Errorf("a list of all clusters: %v", found)
	}
	if _, err := s.watchFrom(t, "*", before); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch that resumes: %v", err)
	}
	if _, err := s.watchFrom(t, "left", before); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch of the cluster that resumes: %v", err)
	}
}

func TestAMigrationWaitsForEveryProcess(t *testing.T) {
	s := newFencedStore(t)
	other := NewBackend(client, s.root, 0)
	defer other.Close()
	other.EnableFences()
	if err := other.fences.refuse("a"); !isLater(err) {
		t.Errorf("a process that does not know the fences reads: %v", err)
	}
	slow := &process{backend: other, key: other.fences.processes + "slow"}
	granted, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	slow.lease = granted.ID
	if err := slow.put(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	revision := s.leave(t, "a")
	if known, err := s.FencesKnown(t.Context(), revision); known || err != nil {
		t.Errorf("a process that has not read the fences is not waited for: %v", err)
	}
	stop := followFences(t, other)
	if _, err := client.Revoke(t.Context(), slow.lease); err != nil {
		t.Fatal(err)
	}
	s.known(t, revision)
	if err := other.fences.refuse("a"); !isLater(err) {
		t.Errorf("a process that began after the fence: %v", err)
	}
	if err := other.fences.refuse("b"); err != nil {
		t.Errorf("a process that knows the fences: %v", err)
	}
	stop()
	if err := other.fences.refuse("b"); !isLater(err) {
		t.Errorf("a process that has stopped: %v", err)
	}
}

func TestTheOwnerOfAStoreIsNotWaitedForOnceAnotherRuns(t *testing.T) {
	s := newFencedStore(t)
	granted, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	killed := &process{backend: s.Backend, key: s.fences.processes + Owner, lease: granted.ID}
	if err := killed.put(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	revision := s.leave(t, "a")
	if known, err := s.FencesKnown(t.Context(), revision); known || err != nil {
		t.Errorf("a killed owner is not waited for: %v", err)
	}
	next := NewBackend(client, s.root, 0)
	defer next.Close()
	next.EnableFences()
	stop, err := next.FollowFences(t.Context(), Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.known(t, revision)
	if _, err := client.Revoke(t.Context(), killed.lease); err != nil { // it expires later
		t.Fatal(err)
	}
	found, err := client.Get(t.Context(), killed.key)
	if err != nil || len(found.Kvs) != 1 {
		t.Errorf("the owner is not waited for after the lease of its predecessor has expired: %v", err)
	}
}

func TestAProcessThatWasPausedRefusesReads(t *testing.T) {
	s := newFencedStore(t)
	create(t, s.maps, "a", "n", "x", nil)
	w, err := s.watchFrom(t, "a", s.now(t))
	if err != nil {
		t.Fatal(err)
	}
	s.fences.extend(time.Now())
	if err := s.maps.Get(in("a"), prefix+"/n/x", storage.GetOptions{}, &core.ConfigMap{}); !isLater(err) {
		t.Errorf("got %v", err)
	}
	create(t, s.maps, "a", "n", "y", nil)
	if events := ended(t, w); len(events) > 0 {
		t.Errorf("the watch got %v", events)
	}
}
