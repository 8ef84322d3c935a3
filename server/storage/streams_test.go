package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
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
	if s, ok := object.(runtime.CacheableObject); ok {
		object = s.GetObject()
	}
	m, ok := object.(*core.ConfigMap)
	if !ok {
		t.Fatalf("the event delivers a %T", object)
	}
	return m.Name
}

func TestWatchesOfTheSameKeysShareWhatTheyDeliver(t *testing.T) {
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
	encode := func(runtime.Object, io.Writer) error { encoded++; return nil }
	for range 2 {
		if err := a.Object.(runtime.CacheableObject).CacheEncode("form", encode, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	if encoded != 1 {
		t.Errorf("it was serialized %d times", encoded)
	}
	create(t, s, "theirs", "default", "third", nil)
	if e := next(t, alone); nameIn(t, e) != "third" {
		t.Errorf("the watch of another cluster delivered %v", e)
	} else if _, shares := e.Object.(runtime.CacheableObject); shares {
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

// follow watches the ConfigMaps of a cluster after a version, or from the beginning with an empty one.
func follow(t *testing.T, s storage.Interface, cluster, version string) watch.Interface {
	t.Helper()
	opts := storage.ListOptions{ResourceVersion: version, Predicate: everything(), Recursive: true}
	if version == "" {
		initial := true
		opts.SendInitialEvents, opts.Predicate.AllowWatchBookmarks = &initial, true
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	w, err := s.Watch(in(cluster), prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAWatchMissesNothingWhereverItBegins(t *testing.T) {
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
			begin[w] = random.IntN(i + 1) // now and then older than what is remembered
			version := versions[begin[w]]
			if w%3 == 0 {
				begin[w], version = -1, ""
			}
			followed[w] = follow(t, s, "ours", version)
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

func TestAWatchThatNobodyReadsIsEndedAndHoldsUpNoOther(t *testing.T) {
	source := watch.NewFake()
	s := &streams{open: map[streamKeys]*stream{}}
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
	const events = behind + 100
	for i := range events {
		source.Add(&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(i + 2)}})
		next(t, reader)
	}
	delivered := 0
	for range idle.ResultChan() {
		delivered++
	}
	if delivered >= events {
		t.Error("a watch kept everything that nobody read")
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
