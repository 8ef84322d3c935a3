package cacheserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// next returns the next event that is no bookmark, as "TYPE shard/cluster/name".
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch has ended")
			}
			if e.Type == watch.Bookmark {
				continue
			}
			m, ok := e.Object.(metav1.Object)
			if !ok {
				t.Fatalf("an event with %T: %v", e.Object, e.Object)
			}
			return fmt.Sprintf("%s %s/%s/%s", e.Type, m.GetAnnotations()["kcp.io/shard"], m.GetAnnotations()["kcp.io/cluster"], m.GetName())
		case <-time.After(30 * time.Second):
			t.Fatal("no event")
		}
	}
}

func follow(t *testing.T, c dynamic.ResourceInterface, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := c.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestWatchesSelectShardsAndLogicalClusters(t *testing.T) {
	s := start(t, nil)
	reader := s.shard(t, "reader")
	places := map[[2]string]watch.Interface{}
	for _, place := range [][2]string{{"alpha", "one"}, {"alpha", "*"}, {"*", "one"}, {"*", "*"}} {
		places[place] = follow(t, in(t, reader, place[0], place[1]).Resource(exports), metav1.ListOptions{})
	}
	var all []string
	write := func(shard, cluster, name string) {
		c := in(t, s.shard(t, shard), shard, cluster).Resource(exports)
		create(t, c, object(name, nil))
		if err := c.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s/%s/%s", shard, cluster, name))
	}
	for _, shard := range []string{"alpha", "alpha-2", "beta"} {
		for _, cluster := range []string{"one", "one2"} {
			write(shard, cluster, "things")
		}
	}
	write("alpha", "one", "last") // every watch delivers it after everything else
	for place, w := range places {
		var want, got []string
		for _, at := range all {
			shard, rest, _ := strings.Cut(at, "/")
			cluster, _, _ := strings.Cut(rest, "/")
			if (place[0] == "*" || place[0] == shard) && (place[1] == "*" || place[1] == cluster) {
				want = append(want, "ADDED "+at, "DELETED "+at)
			}
		}
		for len(got) == 0 || got[len(got)-1] != "DELETED alpha/one/last" {
			got = append(got, next(t, w))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", place, diff)
		}
	}
}

func TestAWatchResumesAtItsVersion(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	create(t, c, object("first", nil))
	list, err := in(t, s.shard(t, "beta"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, c, object("second", nil))
	w := follow(t, in(t, s.shard(t, "beta"), "*", "*").Resource(exports), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if got := next(t, w); got != "ADDED alpha/one/second" {
		t.Errorf("the first event is %s", got)
	}
}

func TestBookmarksFollowTheProgressOfEtcd(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one")
	made := create(t, c.Resource(exports), object("things", nil))
	w := follow(t, in(t, s.shard(t, "beta"), "*", "*").Resource(exports),
		metav1.ListOptions{ResourceVersion: made.GetResourceVersion(), AllowWatchBookmarks: true})
	later := create(t, c.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "x"},
	}})
	deadline := time.After(30 * time.Second)
	for {
		if err := s.handler.config.Backend.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-w.ResultChan():
			if e.Type != watch.Bookmark {
				t.Fatalf("got %v", e)
			}
			if version(t, e.Object.(metav1.Object).GetResourceVersion()) >= version(t, later.GetResourceVersion()) {
				return
			}
		case <-deadline:
			t.Fatal("no bookmark")
		}
	}
}

func version(t *testing.T, text string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestClientsReadMetadataOnly(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	create(t, c, object("things", nil))
	config := s.shard(t, "beta")
	config.Host += "/services/cache/shards/*/clusters/*"
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := partial.Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "things" || list.Items[0].Annotations["kcp.io/shard"] != "alpha" {
		t.Fatalf("list: %v, %v", list, err)
	}
	one, err := partial.Resource(exports).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Stop()
	two, err := partial.Resource(exports).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Stop()
	full := follow(t, in(t, s.shard(t, "beta"), "*", "*").Resource(exports), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	create(t, c, object("more", nil))
	for _, w := range []watch.Interface{one, two} {
		e := <-w.ResultChan()
		if m, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || m.Name != "more" || e.Type != watch.Added {
			t.Errorf("an event of metadata: %v", e)
		}
	}
	e := <-full.ResultChan()
	if u, ok := e.Object.(*unstructured.Unstructured); !ok || u.Object["spec"] == nil {
		t.Errorf("an event of an object: %v", e)
	}
	path := "/services/cache/shards/*/clusters/*" + exportsPath
	code, body, _ := send(t, s.shard(t, "beta"), http.MethodGet, path, "", "Accept",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if code != http.StatusOK || strings.Contains(body, "identityHash") || !strings.Contains(body, `"things"`) {
		t.Errorf("a list of metadata: %d %s", code, body)
	}
}

// cachedResource is a resource with an identity.
func cachedResource(c dynamic.Interface, identity string) dynamic.NamespaceableResourceInterface {
	gvr := exports
	gvr.Group, gvr.Version, gvr.Resource = "example.com", "v1", "widgets:"+identity
	return c.Resource(gvr)
}

func widget(name, namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": "anything"}}
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

func TestIdentitiesDoNotMix(t *testing.T) {
	s := start(t, nil)
	alpha := in(t, s.shard(t, "alpha"), "alpha", "one")
	create(t, cachedResource(alpha, "aa"), widget("x", ""))
	create(t, cachedResource(alpha, "aaa"), widget("y", ""))
	create(t, cachedResource(alpha, "aa").Namespace("n"), widget("z", "n"))
	reader := in(t, s.shard(t, "beta"), "*", "*")
	for identity, want := range map[string][]string{"aa": {"alpha/one/z", "alpha/one/x"}, "aaa": {"alpha/one/y"}, "a": nil} {
		list, err := cachedResource(reader, identity).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
	}
	list, err := cachedResource(reader, "aa").Namespace("n").List(t.Context(), metav1.ListOptions{})
	if err != nil || cmp.Diff([]string{"alpha/one/z"}, names(list)) != "" || list.GetKind() != "WidgetList" {
		t.Errorf("in a namespace: %v %v", list, err)
	}
	if _, err := cachedResource(alpha, "aa").Get(t.Context(), "z", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without its namespace: %v", err)
	}
}

func TestListsArePagedAndComplete(t *testing.T) {
	s := start(t, nil)
	alpha := in(t, s.shard(t, "alpha"), "alpha", "one")
	big := strings.Repeat("x", 1<<20)
	const objects = 20
	for i := range objects {
		u := widget(fmt.Sprintf("w-%02d", i), "")
		u.Object["spec"] = big
		create(t, cachedResource(alpha, "aa"), u)
	}
	read, pages, token := 0, 0, ""
	for {
		list, err := cachedResource(in(t, s.shard(t, "beta"), "*", "*"), "aa").List(t.Context(), metav1.ListOptions{Continue: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			if want := fmt.Sprintf("w-%02d", read); u.GetName() != want {
				t.Fatalf("object %d is %s", read, u.GetName())
			}
			read++
		}
		if pages++; list.GetContinue() == "" {
			break
		}
		token = list.GetContinue()
	}
	if read != objects || pages < 2 {
		t.Errorf("%d objects of 1 MiB in %d pages", read, pages)
	}
	list, err := cachedResource(alpha, "aa").List(t.Context(), metav1.ListOptions{Limit: 3})
	if err != nil || len(list.Items) != 3 || list.GetContinue() == "" {
		t.Errorf("a page of 3: %d, %v", len(list.Items), err)
	}
}

func TestARestartedServerHasEverything(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	made := create(t, c, object("things", nil))
	_, _, header := send(t, s.shard(t, "alpha"), http.MethodGet, "/services/cache/shards/*/clusters/*/apis", "")
	again := start(t, nil) // with the same part of etcd, like a replica
	got, err := in(t, again.shard(t, "beta"), "alpha", "one").Resource(exports).Get(t.Context(), "things", metav1.GetOptions{})
	if err != nil || cmp.Diff(made.Object, got.Object) != "" {
		t.Errorf("the object is %v: %v", got, err)
	}
	_, _, after := send(t, again.shard(t, "alpha"), http.MethodGet, "/services/cache/shards/*/clusters/*/apis", "")
	if id := header.Get(InstanceHeader); id == "" || after.Get(InstanceHeader) != id {
		t.Errorf("the instance is %q, was %q", after.Get(InstanceHeader), id)
	}
	w := follow(t, in(t, again.shard(t, "beta"), "*", "*").Resource(exports), metav1.ListOptions{ResourceVersion: made.GetResourceVersion()})
	create(t, c, object("more", nil))
	if got := next(t, w); got != "ADDED alpha/one/more" {
		t.Errorf("a write at another replica: %s", got)
	}
	other := start(t, func(c *Config) { c.Backend = c.Backend.Beside("/" + t.Name() + "-other") })
	_, _, header = send(t, other.shard(t, "alpha"), http.MethodGet, "/services/cache/shards/*/clusters/*/apis", "")
	if header.Get(InstanceHeader) == after.Get(InstanceHeader) {
		t.Error("an empty cache server has the instance of another one")
	}
	list, err := in(t, other.shard(t, "beta"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("the other server has %v: %v", list, err)
	}
}
