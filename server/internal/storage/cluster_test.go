package storage

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	client  *clientv3.Client
	backend *Backend
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "storage-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(directory)
		server, err := etcd.Start(context.Background(), etcd.Config{Directory: filepath.Join(directory, "etcd")})
		if err != nil {
			panic(err)
		}
		defer server.Stop()
		client = server.Client()
		backend = NewBackend(client, "", 0)
		defer backend.Close()
		return m.Run()
	}())
}

const prefix = "/core/configmaps"

// configMaps returns storage of ConfigMaps below a separate root.
func configMaps(t *testing.T) storage.Interface {
	t.Helper()
	return configMapsOf(t, backend)
}

func configMapsOf(t *testing.T, backend *Backend) storage.Interface {
	t.Helper()
	return configMapsBelow(t, backend, "/"+strings.ReplaceAll(t.Name(), "/", "_"), nil)
}

func configMapsBelow(t *testing.T, backend *Backend, root string, transformer value.Transformer) storage.Interface {
	t.Helper()
	codec := legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)
	config := storagebackend.NewDefaultConfig(root, codec).ForResource(schema.GroupResource{Resource: "configmaps"})
	config.Transformer = transformer
	keyFunc := func(obj runtime.Object) (string, error) {
		m := obj.(*core.ConfigMap)
		return registry.NamespaceKeyFunc(request.WithNamespace(context.Background(), m.Namespace), prefix, m.Name)
	}
	s, stop, err := backend.decorator(config.Codec, "")(config, prefix, keyFunc,
		func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.ConfigMapList{} },
		storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s
}

func in(cluster string) context.Context {
	if cluster == "*" {
		return logicalcluster.WithWildcard(context.Background())
	}
	return logicalcluster.WithName(context.Background(), logicalcluster.Name(cluster))
}

func create(t *testing.T, s storage.Interface, cluster, namespace, name string, annotations map[string]string) *core.ConfigMap {
	t.Helper()
	out := &core.ConfigMap{}
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	if err := s.Create(in(cluster), prefix+"/"+namespace+"/"+name, obj, out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func list(t *testing.T, s storage.Interface, cluster, below string) []string {
	t.Helper()
	return listIn(t, in(cluster), s, below)
}

func listIn(t *testing.T, ctx context.Context, s storage.Interface, below string) []string {
	t.Helper()
	out := &core.ConfigMapList{}
	if err := s.GetList(ctx, prefix+below, storage.ListOptions{Predicate: everything(), Recursive: true}, out); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, item := range out.Items {
		names = append(names, fmt.Sprintf("%s|%s/%s", logicalcluster.Of(&item), item.Namespace, item.Name))
	}
	return names
}

func everything() storage.SelectionPredicate {
	p := storage.Everything
	p.GetAttrs = storage.DefaultNamespaceScopedAttr
	return p
}

func TestObjectsOfOneClusterAreInvisibleInAnother(t *testing.T) {
	s := configMaps(t)
	create(t, s, "a", "n", "x", nil)
	create(t, s, "ab", "n", "x", nil) // a name that has the other as a prefix
	create(t, s, "a:b", "n", "y", nil)
	for cluster, want := range map[string]string{"a": "[a|n/x]", "ab": "[ab|n/x]", "a:b": "[a:b|n/y]", "b": "[]"} {
		if got := fmt.Sprint(list(t, s, cluster, "")); got != want {
			t.Errorf("list in %s: got %s, want %s", cluster, got, want)
		}
	}
	err := s.Get(in("b"), prefix+"/n/x", storage.GetOptions{}, &core.ConfigMap{})
	if !storage.IsNotFound(err) || strings.Contains(err.Error(), "/b/") {
		t.Errorf("get from another cluster: got %v, want not found without a storage key", err)
	}
	if got := fmt.Sprint(list(t, s, "*", "")); got != "[a|n/x a:b|n/y ab|n/x]" {
		t.Errorf("list of all clusters: got %s", got)
	}
	if got := fmt.Sprint(list(t, s, "*", "/n")); got != "[a|n/x a:b|n/y ab|n/x]" {
		t.Errorf("list of a namespace of all clusters: got %s", got)
	}
	if got := fmt.Sprint(list(t, s, "*", "/other")); got != "[]" {
		t.Errorf("list of a missing namespace of all clusters: got %s", got)
	}
}

func TestTheClusterAnnotationCannotBeForgedOrRemoved(t *testing.T) {
	s := configMaps(t)
	if got := logicalcluster.Of(create(t, s, "a", "n", "x", map[string]string{logicalcluster.AnnotationKey: "b"})); got != "a" {
		t.Errorf("created with a forged annotation: got %q, want a", got)
	}
	for _, forged := range []map[string]string{{logicalcluster.AnnotationKey: "b"}, {}, nil} {
		out := &core.ConfigMap{}
		err := s.GuaranteedUpdate(in("a"), prefix+"/n/x", out, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			m := obj.(*core.ConfigMap)
			m.Annotations = forged
			return m, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := logicalcluster.Of(out); got != "a" {
			t.Errorf("updated with annotations %v: got %q, want a", forged, got)
		}
	}
}

func TestAnOperationWithoutAClusterFails(t *testing.T) {
	s := configMaps(t)
	none := context.Background()
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}
	for verb, err := range operations(none, s, obj) {
		if !apierrors.IsInternalError(err) {
			t.Errorf("%s without a cluster: got %v, want an internal error", verb, err)
		}
	}
}

func TestAllClustersCanOnlyBeListedAndWatched(t *testing.T) {
	s := configMaps(t)
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}
	for verb, err := range operations(in("*"), s, obj) {
		reads := verb == "list" || verb == "watch"
		if reads && err != nil {
			t.Errorf("%s of all clusters: %v", verb, err)
		}
		if !reads && !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s of all clusters: got %v, want method not allowed", verb, err)
		}
	}
}

func operations(ctx context.Context, s storage.Interface, obj *core.ConfigMap) map[string]error {
	key := prefix + "/" + obj.Namespace + "/" + obj.Name
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, watchErr := s.Watch(ctx, prefix, storage.ListOptions{Predicate: everything(), Recursive: true})
	return map[string]error{
		"create": s.Create(ctx, key, obj.DeepCopy(), &core.ConfigMap{}, 0),
		"get":    s.Get(ctx, key, storage.GetOptions{}, &core.ConfigMap{}),
		"update": s.GuaranteedUpdate(ctx, key, &core.ConfigMap{}, true, nil, storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return obj.DeepCopy(), nil }), nil),
		"delete": s.Delete(ctx, key, &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
		"list":   s.GetList(ctx, prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, &core.ConfigMapList{}),
		"watch":  watchErr,
	}
}

func TestAContinueTokenDoesNotReadAnotherCluster(t *testing.T) {
	s := configMaps(t)
	for _, name := range []string{"x", "y", "z"} {
		create(t, s, "a", "n", name, nil)
		create(t, s, "b", "n", name, nil)
	}
	page := everything()
	page.Limit = 1
	first := &core.ConfigMapList{}
	if err := s.GetList(in("a"), prefix, storage.ListOptions{Predicate: page, Recursive: true}, first); err != nil {
		t.Fatal(err)
	}
	if first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 2 {
		t.Fatalf("first page: got continue %q and remaining %v, want a token and 2", first.Continue, first.RemainingItemCount)
	}
	page.Continue = first.Continue
	page.Limit = 100
	rest := &core.ConfigMapList{}
	if err := s.GetList(in("b"), prefix, storage.ListOptions{Predicate: page, Recursive: true}, rest); err != nil {
		t.Fatal(err)
	}
	for _, item := range rest.Items {
		if got := logicalcluster.Of(&item); got != "b" {
			t.Errorf("token of a used in b: got an object of %s", got)
		}
	}
}

// Clients can modify tokens.
func TestAForgedContinueTokenCannotReachAnotherCluster(t *testing.T) {
	s := configMaps(t)
	for _, cluster := range []string{"a", "b", "c"} {
		create(t, s, cluster, "n", "x", nil)
	}
	var revision core.ConfigMapList
	if err := s.GetList(in("b"), prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, &revision); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"../a/n/x", "../c/n/x", "/../a/", "..", "n/../../a/n/x", "./../a", "//a/n/x", "%2e%2e/a/n/x", "\x00", "a/n/x", "n/x\x00", "zzz"} {
		token, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": json.RawMessage(revision.ResourceVersion), "start": start})
		if err != nil {
			t.Fatal(err)
		}
		page := everything()
		page.Limit, page.Continue = 100, base64.RawURLEncoding.EncodeToString(token)
		list := &core.ConfigMapList{}
		err = s.GetList(in("b"), prefix, storage.ListOptions{Predicate: page, Recursive: true}, list)
		if strings.Contains(start, "..") && err == nil && !strings.HasPrefix(start, "%") {
			t.Errorf("a token that begins at %q is accepted", start)
		}
		for _, item := range list.Items {
			if got := logicalcluster.Of(&item); got != "b" {
				t.Errorf("a token that begins at %q reads an object of %s", start, got)
			}
		}
	}
}

func TestAWatchSeesOnlyTheEventsOfItsCluster(t *testing.T) {
	s := configMaps(t)
	create(t, s, "a", "n", "before", nil)
	ctx, cancel := context.WithCancel(in("a"))
	defer cancel()
	initial := true
	predicate := everything()
	predicate.AllowWatchBookmarks = true
	w, err := s.Watch(ctx, prefix, storage.ListOptions{Predicate: predicate, Recursive: true, SendInitialEvents: &initial})
	if err != nil {
		t.Fatal(err)
	}
	next := func() watch.Event {
		t.Helper()
		select {
		case e := <-w.ResultChan():
			return e
		case <-time.After(20 * time.Second):
			t.Fatal("no event within 20 s")
			return watch.Event{}
		}
	}
	if e := next(); e.Type != watch.Added || e.Object.(*core.ConfigMap).Name != "before" {
		t.Fatalf("initial event: got %v", e)
	}
	if e := next(); e.Type != watch.Bookmark || e.Object.(*core.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("after the initial events: got %v, want the bookmark that ends them", e)
	}
	create(t, s, "b", "n", "foreign", nil)
	create(t, s, "a", "n", "own", nil)
	if e := next(); e.Type != watch.Added || e.Object.(*core.ConfigMap).Name != "own" || logicalcluster.Of(e.Object.(*core.ConfigMap)) != "a" {
		t.Fatalf("got %v, want the addition of a|n/own", e)
	}
	if e := next(); e.Type != watch.Bookmark {
		t.Fatalf("while nothing happens: got %v, want a bookmark", e)
	}
}

func TestKeysHaveTheDocumentedFormat(t *testing.T) {
	s := configMaps(t)
	create(t, s, "a", "n", "x", nil)
	got, err := client.Get(context.Background(), "/"+t.Name(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	want := "/" + t.Name() + "/core/configmaps/a/n/x"
	if len(got.Kvs) != 1 || string(got.Kvs[0].Key) != want {
		t.Errorf("keys: got %v, want %s", got.Kvs, want)
	}
}
