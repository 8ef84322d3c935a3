package storage

import (
	"bytes"
	"io"
	"testing"
	"time"

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
	follow := func(cluster string) watch.Interface {
		w, err := s.Watch(in(cluster), prefix, storage.ListOptions{ResourceVersion: begin, Predicate: everything(), Recursive: true})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	alone := follow("theirs")
	defer alone.Stop()
	one, two := follow("ours"), follow("ours")
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
		backend.fanouts.mu.Lock()
		left = 0
		for keys := range backend.fanouts.byKeys {
			if keys.storage == s.(*clusterStorage) {
				left++
			}
		}
		backend.fanouts.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d groups of watches are left", left)
		}
	}
}
