package storage

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestAWatchCanDeliverNewlySelectedObjectsAsModified(t *testing.T) {
	s := configMaps(t)
	label := func(name, value string) {
		t.Helper()
		err := s.GuaranteedUpdate(in("ours"), prefix+"/default/"+name, &core.ConfigMap{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.ConfigMap).Labels = map[string]string{"ends": value}
			return obj, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, "ours", "default", "already", nil)
	label("already", "yes")
	begin := create(t, s, "ours", "default", "later", nil)
	selected := everything()
	selected.Label = labels.SelectorFromSet(labels.Set{"ends": "yes"})
	var watches []watch.Interface
	initial := true
	for _, c := range []struct {
		opts    storage.ListOptions
		initial bool
	}{
		{storage.ListOptions{ResourceVersion: begin.ResourceVersion, Predicate: selected, Recursive: true}, false},
		{storage.ListOptions{ResourceVersion: "", Predicate: selected, Recursive: true}, true},
		{storage.ListOptions{ResourceVersion: "0", Predicate: selected, Recursive: true}, true},
		{storage.ListOptions{ResourceVersion: "1", SendInitialEvents: &initial, Predicate: selected, Recursive: true}, true},
	} {
		w, err := s.Watch(WithModifiedOnEntry(in("*")), prefix, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		if c.initial {
			if e := next(t, w); e.Type != watch.Added || nameIn(t, e) != "already" {
				t.Errorf("a watch from %q begins with %v", c.opts.ResourceVersion, e)
			}
		}
		watches = append(watches, w)
	}
	label("later", "yes")
	label("later", "no")
	for i, w := range watches {
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			if e := next(t, w); e.Type != want || nameIn(t, e) != "later" {
				t.Errorf("watch %d delivered %v, want %s", i, e, want)
			}
		}
	}
}
