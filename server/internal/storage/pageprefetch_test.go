package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kcplane/kcp/server/logicalcluster"
)

var widgetKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}

const widgetPrefix = "/example.org/widgets"

// widgets returns storage of custom resources below a separate root.
func widgets(t *testing.T) *clusterStorage {
	t.Helper()
	config := storagebackend.NewDefaultConfig("/"+t.Name(), unstructured.UnstructuredJSONScheme).ForResource(schema.GroupResource{Group: "example.org", Resource: "widgets"})
	s, stop, err := backend.decorator(config.Codec, "")(config, widgetPrefix, func(runtime.Object) (string, error) { return "", nil },
		func() runtime.Object { return widget("") }, func() runtime.Object { return widgetList() }, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s.(*clusterStorage)
}

func widget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(widgetKind)
	u.SetName(name)
	return u
}

func widgetList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(widgetKind.GroupVersion().WithKind("WidgetList"))
	return list
}

// fill creates n widgets in some clusters.
func fill(t *testing.T, s *clusterStorage, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("w%04d", i)
		if err := s.Create(in(fmt.Sprint("c", i%3)), widgetPrefix+"/"+name, widget(name), widget(""), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func listOptions(limit int64, token string) storage.ListOptions {
	return storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(), Limit: limit, Continue: token, GetAttrs: storage.DefaultClusterScopedAttr,
	}}
}

// inPages lists all objects, and calls between after each page.
func inPages(t *testing.T, s *clusterStorage, limit int64, between func(*unstructured.UnstructuredList)) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for token := ""; ; {
		page := widgetList()
		if err := s.GetList(in("*"), widgetPrefix, listOptions(limit, token), page); err != nil {
			t.Fatal(err)
		}
		if int64(len(page.Items)) > limit || page.GetKind() != "WidgetList" {
			t.Fatalf("a page is a %s with %d objects", page.GetKind(), len(page.Items))
		}
		all = append(all, page.Items...)
		between(page)
		if token = page.GetContinue(); token == "" {
			return all
		}
	}
}

func TestAListInPagesIsTheListOfOneRevision(t *testing.T) {
	s := widgets(t)
	fill(t, s, 300)
	whole := widgetList()
	if err := s.GetList(in("*"), widgetPrefix, listOptions(0, ""), whole); err != nil || len(whole.Items) != 300 {
		t.Fatalf("%d objects are listed: %v", len(whole.Items), err)
	}
	made := 0
	got := inPages(t, s, 20, func(page *unstructured.UnstructuredList) {
		made = max(made, len(s.next.pages))
		if page.GetResourceVersion() != whole.GetResourceVersion() {
			t.Errorf("a page is of %s, the list of %s", page.GetResourceVersion(), whole.GetResourceVersion())
		}
		_ = s.Create(in("c0"), widgetPrefix+"/later", widget("later"), widget(""), 0) // of no page
	})
	if diff := cmp.Diff(whole.Items, got); diff != "" {
		t.Error(diff)
	}
	if made != 1 || len(s.next.pages) != 0 {
		t.Errorf("%d pages were made ahead at a time, %d are left", made, len(s.next.pages))
	}
}

func TestAPrefetchedPageIsOnlyForTheSameList(t *testing.T) {
	s := widgets(t)
	fill(t, s, 60)
	first, second := widgetList(), widgetList()
	if err := s.GetList(in("*"), widgetPrefix, listOptions(10, ""), first); err != nil {
		t.Fatal(err)
	}
	if len(s.next.pages) != 0 {
		t.Error("a page is prefetched for a client that has not continued yet")
	}
	if err := s.GetList(in("*"), widgetPrefix, listOptions(10, first.GetContinue()), second); err != nil {
		t.Fatal(err)
	}
	selected := listOptions(10, second.GetContinue())
	selected.Predicate.Label = labels.SelectorFromSet(labels.Set{"a": "b"})
	for what, read := range map[string]func() ([]unstructured.Unstructured, error){
		"a selector": func() ([]unstructured.Unstructured, error) {
			list := widgetList()
			err := s.GetList(in("*"), widgetPrefix, selected, list)
			return list.Items, err
		},
		"a restriction": func() ([]unstructured.Unstructured, error) {
			list := widgetList()
			err := s.GetList(WithRestriction(in("*"), labels.SelectorFromSet(labels.Set{"a": "b"})), widgetPrefix, listOptions(10, second.GetContinue()), list)
			return list.Items, err
		},
	} {
		if items, err := read(); len(items) > 0 {
			t.Errorf("%s: %d objects are listed, %v", what, len(items), err)
		}
	}
	own := widgetList()
	if err := s.GetList(in("c0"), widgetPrefix, listOptions(10, second.GetContinue()), own); err != nil {
		t.Fatal(err)
	}
	for _, item := range own.Items {
		if cluster := logicalcluster.Of(&item); cluster != "c0" {
			t.Errorf("the list of one cluster has an object of %s", cluster)
		}
	}
	third := widgetList()
	if err := s.GetList(in("*"), widgetPrefix, listOptions(5, second.GetContinue()), third); err != nil || len(third.Items) != 5 {
		t.Errorf("a smaller page has %d objects: %v", len(third.Items), err)
	}
}

func TestAPrefetchedPageThatIsNotRequestedIsDropped(t *testing.T) {
	s := widgets(t)
	fill(t, s, 50)
	for limit := range int64(nextLists + 5) {
		first := widgetList()
		if err := s.GetList(in("*"), widgetPrefix, listOptions(limit+1, ""), first); err != nil {
			t.Fatal(err)
		}
		if err := s.GetList(in("*"), widgetPrefix, listOptions(limit+1, first.GetContinue()), widgetList()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.next.pages) != nextLists {
		t.Errorf("%d pages are kept, want %d", len(s.next.pages), nextLists)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		s.next.mu.Lock()
		left := len(s.next.pages)
		s.next.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d pages are left", left)
		}
	}
}

func TestAnObjectThatCannotBeDecodedFailsItsList(t *testing.T) {
	s := widgets(t)
	fill(t, s, 300)
	key := "/" + t.Name() + widgetPrefix + "/c1/broken"
	if _, err := client.Put(context.Background(), key, "{"); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 150} {
		var failed error
		for token := ""; failed == nil; {
			page := widgetList()
			failed = s.GetList(in("*"), widgetPrefix, listOptions(limit, token), page)
			if token = page.GetContinue(); token == "" && failed == nil {
				t.Fatalf("limit %d: a list without the object succeeds", limit)
			}
		}
		if !strings.Contains(failed.Error(), "JSON") {
			t.Errorf("limit %d: %v", limit, failed)
		}
	}
}
