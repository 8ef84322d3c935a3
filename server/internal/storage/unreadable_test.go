package storage

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var sliceKind = apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice")

const slicePrefix = "/apis.kcp.io/apiexportendpointslices/customresources"

// sliceStorage has the two storages of one resource: that of the server, and that of requests.
type sliceStorage struct {
	backend  *Backend
	root     string
	typed    *Typed
	requests storage.Interface
	told     []Unreadable
}

func below(root string) OptionsGetter {
	return func(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
		config := storagebackend.NewDefaultConfig(root, legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)).ForResource(resource)
		return generic.RESTOptions{StorageConfig: config}, nil
	}
}

func newSliceStorage(t *testing.T) *sliceStorage {
	t.Helper()
	b := NewBackend(client, "", 0)
	t.Cleanup(b.Close)
	s := &sliceStorage{backend: b, root: "/" + strings.ReplaceAll(t.Name(), "/", "_") + rand.Text()}
	b.OnUnreadable(func(u Unreadable) { s.told = append(s.told, u) })
	scheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.typed, err = b.Typed(below(s.root), apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"), scheme, "APIExportEndpointSlice", "APIExportEndpointSliceList"); err != nil {
		t.Fatal(err)
	}
	options, _ := b.Custom(below(s.root)).GetRESTOptions(apisv1alpha1.Resource("apiexportendpointslices"), nil)
	clusterScoped := func(runtime.Object) (string, error) { return "", nil }
	empty := func() runtime.Object { return endpointSlice("", nil) }
	s.requests, _, err = options.Decorator(options.StorageConfig, options.ResourcePrefix, clusterScoped, empty, func() runtime.Object { return &unstructured.UnstructuredList{} }, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func endpointSlice(name string, status map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"export": map[string]any{"name": "e"}}}}
	u.SetGroupVersionKind(sliceKind)
	u.SetName(name)
	if status != nil {
		u.Object["status"] = status
	}
	return u
}

// transitioned is a status with a condition of a time.
func transitioned(at string) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": at}}}
}

// put writes a value without checks.
func (s *sliceStorage) put(t *testing.T, cluster, name, value string) {
	t.Helper()
	if _, err := client.Put(t.Context(), s.root+slicePrefix+"/"+cluster+"/"+name, value); err != nil {
		t.Fatal(err)
	}
}

// storedSlice is the stored form of the object of a key.
func storedSlice(cluster, name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":{"name":%q,"annotations":{"kcp.io/cluster":%q}}%s}`, name, cluster, rest)
}

// poison are values that no API accepts, and some that the schema accepts.
var poison = map[string]string{
	"truncated":  `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportE`,
	"binary":     "\x00\x01garbage",
	"empty":      "",
	"null":       "null",
	"string":     `"text"`,
	"list":       "[]",
	"wrong-type": storedSlice("a", "wrong-type", `,"spec":{"export":"text"}`),
	"status":     storedSlice("a", "status", `,"status":{"endpoints":{}}`),
	"other-kind": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other-kind","annotations":{"kcp.io/cluster":"a"}}}`,
	"no-kind":    `{"metadata":{"name":"no-kind","annotations":{"kcp.io/cluster":"a"}}}`,
	"no-name":    `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":{"annotations":{"kcp.io/cluster":"a"}}}`,
	"metadata":   `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":"text"}`,
	"unmarked":   `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":{"name":"unmarked"}}`,
	"elsewhere":  storedSlice("b", "elsewhere", ""),
	"renamed":    storedSlice("a", "good", ""),
	"created":    `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":{"name":"created","creationTimestamp":"yesterday","annotations":{"kcp.io/cluster":"a"}}}`,
}

func (s *sliceStorage) all(t *testing.T) ([]string, string) {
	t.Helper()
	list, err := s.typed.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := list.(*apisv1alpha1.APIExportEndpointSliceList)
	names := []string{}
	for _, item := range found.Items {
		names = append(names, string(logicalcluster.Of(&item))+"|"+item.Name)
	}
	return names, found.ResourceVersion
}

func (s *sliceStorage) create(t *testing.T, cluster string, object *unstructured.Unstructured) error {
	t.Helper()
	return s.requests.Create(in(cluster), slicePrefix+"/"+object.GetName(), object, &unstructured.Unstructured{}, 0)
}

func (s *sliceStorage) change(t *testing.T, cluster, name string, change func(*unstructured.Unstructured)) error {
	t.Helper()
	return s.requests.GuaranteedUpdate(in(cluster), slicePrefix+"/"+name, &unstructured.Unstructured{}, false, nil,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			u := obj.(*unstructured.Unstructured).DeepCopy()
			change(u)
			return u, nil
		}), nil)
}

// deleting is the context of a request that deletes.
func deleting(cluster string) context.Context {
	return request.WithRequestInfo(in(cluster), &request.RequestInfo{IsResourceRequest: true, Verb: "delete"})
}

func TestUnreadableObjectsAreSetAsideAndCanBeDeleted(t *testing.T) {
	s := newSliceStorage(t)
	for cluster, name := range map[string]string{"a": "good", "z": "last"} {
		if err := s.create(t, cluster, endpointSlice(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range poison {
		s.put(t, "a", name, value)
	}
	names, _ := s.all(t)
	if diff := cmp.Diff([]string{"a|good", "z|last"}, names); diff != "" {
		t.Error(diff)
	}
	if _, err := s.typed.ListIn(t.Context(), "a", metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if len(s.told) != len(poison) {
		t.Errorf("reported %v", s.told)
	}
	for _, u := range s.told {
		if _, ok := poison[u.Name]; !ok || u.Cluster != "a" || u.Resource != apisv1alpha1.Resource("apiexportendpointslices") || u.Err == nil {
			t.Errorf("reported %+v", u)
		}
	}
	s.told = nil
	s.all(t)
	if len(s.told) > 0 {
		t.Errorf("reported again %v", s.told)
	}
	for name := range poison {
		s.deletedByRequest(t, "a", name)
	}
	list := &unstructured.UnstructuredList{}
	if err := s.requests.GetList(in("a"), slicePrefix, listOptions(0, ""), list); err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "good" {
		t.Errorf("%v is left: %v", list.Items, err)
	}
}

// deletedByRequest deletes the objects that requests list.
func (s *sliceStorage) deletedByRequest(t *testing.T, cluster, name string) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	if err := s.requests.GetList(in(cluster), slicePrefix, listOptions(0, ""), list); err != nil {
		t.Fatal(err)
	}
	if name != "renamed" && !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetName() == name }) {
		t.Errorf("%s is not listed", name)
	}
	out := &unstructured.Unstructured{}
	if err := s.requests.Get(deleting(cluster), slicePrefix+"/"+name, storage.GetOptions{}, out); err != nil {
		t.Errorf("getting %s to delete it: %v", name, err)
	}
	if err := s.requests.Delete(deleting(cluster), slicePrefix+"/"+name, &unstructured.Unstructured{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Errorf("deleting %s: %v", name, err)
	}
}

func TestUnreadableValuesDoNotEndAWatchAcrossClusters(t *testing.T) {
	s := newSliceStorage(t)
	if err := s.create(t, "a", endpointSlice("good", nil)); err != nil {
		t.Fatal(err)
	}
	_, version := s.all(t)
	events, err := s.typed.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	expect := func(want string) {
		t.Helper()
		select {
		case e, ok := <-events.ResultChan():
			m, err := meta.Accessor(e.Object)
			if !ok || err != nil {
				t.Fatalf("got %+v, want %s", e, want)
			}
			if got := fmt.Sprintf("%s %s|%s", e.Type, logicalcluster.Of(m), m.GetName()); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event, want %s", want)
		}
	}
	for _, name := range []string{"truncated", "wrong-type", "elsewhere", "unmarked"} {
		s.put(t, "a", name, poison[name])
		expect("DELETED a|" + name)
		s.put(t, "a", name, poison["binary"])
		expect("DELETED a|" + name)
		s.put(t, "a", name, storedSlice("a", name, ""))
		expect("MODIFIED a|" + name)
		s.put(t, "a", name, poison[name])
		expect("DELETED a|" + name)
		if _, err := client.Delete(t.Context(), s.root+slicePrefix+"/a/"+name); err != nil {
			t.Fatal(err)
		}
		expect("DELETED a|" + name)
	}
	s.put(t, "a", "conditions", storedSlice("a", "conditions", `,"status":{"conditions":[{"lastTransitionTime":"never"}]}`))
	expect("ADDED a|conditions")
	if err := s.create(t, "z", endpointSlice("last", nil)); err != nil {
		t.Fatal(err)
	}
	expect("ADDED z|last")
}

func TestUnreadableConditionsAreOmitted(t *testing.T) {
	s := newSliceStorage(t)
	s.put(t, "a", "x", storedSlice("a", "x", `,"spec":{"partition":"p"},"status":{"shardSelector":"s","conditions":[{"type":"Ready","lastTransitionTime":"2020-01-01t00:00:00z"}]}`))
	if names, _ := s.all(t); len(names) != 1 || len(s.told) != 1 {
		t.Fatalf("%v is listed, and reported as %v", names, s.told)
	}
	got := &apisv1alpha1.APIExportEndpointSlice{}
	if err := s.typed.Get(in("a"), "x", got); err != nil || got.Spec.Partition != "p" || got.Status.Conditions != nil {
		t.Errorf("got %+v: %v", got, err)
	}
	err := s.typed.Update(in("a"), "x", &apisv1alpha1.APIExportEndpointSlice{}, func(obj runtime.Object) error {
		obj.(*apisv1alpha1.APIExportEndpointSlice).Status.Conditions = []corev1alpha1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.Now()}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.typed.Get(in("a"), "x", got); err != nil || len(got.Status.Conditions) != 1 || got.Status.ShardSelector != "s" {
		t.Errorf("the controller wrote %+v: %v", got, err)
	}
}

func TestTheServerDoesNotUseUnreadableObjects(t *testing.T) {
	s := newSliceStorage(t)
	s.put(t, "a", "x", poison["truncated"])
	got := &apisv1alpha1.APIExportEndpointSlice{}
	if err := s.typed.Get(in("a"), "x", got); !IsUnreadable(err) || got.Name != "" {
		t.Errorf("got %+v: %v", got, err)
	}
	called := func(runtime.Object) error { t.Error("called with what cannot be read"); return nil }
	if err := s.typed.Update(in("a"), "x", got, called); !IsUnreadable(err) {
		t.Error(err)
	}
	if err := s.typed.Delete(in("a"), "x", got, called); !IsUnreadable(err) {
		t.Error(err)
	}
	whole := &apisv1alpha1.APIExportEndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: sliceKind.GroupVersion().String(), Kind: sliceKind.Kind}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if err := s.typed.Replace(in("a"), "x", whole, got); err != nil || logicalcluster.Of(got) != "a" {
		t.Errorf("got %+v: %v", got, err)
	}
	if err := s.typed.Replace(in("a"), "x", whole, got); !apierrors.IsConflict(err) {
		t.Errorf("what can be read is replaced: %v", err)
	}
}

func TestObjectsThatTheServerCannotReadAreNotStored(t *testing.T) {
	s := newSliceStorage(t)
	for name, status := range map[string]map[string]any{
		"lower-case": transitioned("2020-01-01t00:00:00z"),
		"year-10000": transitioned("9999-12-31T23:59:59-01:00"), // in UTC
		"year-0":     transitioned("0000-01-01T00:00:00+01:00"),
		"type":       {"conditions": "none"},
	} {
		err := s.create(t, "a", endpointSlice(name, status))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.create(t, "a", endpointSlice(name, transitioned("9999-12-31T23:59:59Z"))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err = s.change(t, "a", name, func(u *unstructured.Unstructured) { u.Object["status"] = status })
		if !apierrors.IsInvalid(err) || name == "lower-case" && !strings.Contains(err.Error(), "status.conditions[0].lastTransitionTime") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStoredUnreadableContentCanBeRepairedInSteps(t *testing.T) {
	s := newSliceStorage(t)
	s.put(t, "a", "x", `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","metadata":{"name":"x","finalizers":["f/f"],"annotations":{"kcp.io/cluster":"a"}},"spec":{"export":"text"},"status":{"conditions":{}}}`)
	if err := s.change(t, "a", "x", func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := s.change(t, "a", "x", func(u *unstructured.Unstructured) { delete(u.Object, "status") }); err != nil {
		t.Fatal(err)
	}
	if names, _ := s.all(t); len(names) > 0 {
		t.Errorf("%v is listed", names)
	}
	repaired := func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"export": map[string]any{"name": "e"}}
	}
	if err := s.change(t, "a", "x", repaired); err != nil {
		t.Fatal(err)
	}
	if names, _ := s.all(t); len(names) != 1 {
		t.Errorf("%v is listed", names)
	}
	if err := s.change(t, "a", "x", func(u *unstructured.Unstructured) { u.Object["status"] = transitioned("never") }); !apierrors.IsInvalid(err) {
		t.Errorf("what is repaired can be broken again: %v", err)
	}
}

func TestUnreadableBuiltInObjectsDoNotHideOthers(t *testing.T) {
	root := "/" + t.Name() + rand.Text()
	options, _ := backend.BuiltIn(below(root)).GetRESTOptions(schema.GroupResource{Resource: "configmaps"}, nil)
	keyFunc := func(obj runtime.Object) (string, error) {
		m := obj.(*core.ConfigMap)
		return registry.NamespaceKeyFunc(request.WithNamespace(context.Background(), m.Namespace), prefix, m.Name)
	}
	s, stop, err := options.Decorator(options.StorageConfig, options.ResourcePrefix, keyFunc,
		func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.ConfigMapList{} }, storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := backend.RegisterMetrics(metrics.NewKubeRegistry().Register); err != nil {
		t.Fatal(err)
	}
	before, err := testutil.GetCounterMetricValue(backend.reports.count)
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "a", "n", "good", nil)
	create(t, s, "b", "n", "good", nil)
	events, err := s.Watch(in("*"), prefix, storage.ListOptions{ResourceVersion: create(t, s, "b", "n", "late", nil).ResourceVersion, Predicate: everything(), Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if _, err := client.Put(t.Context(), root+prefix+"/a/n/bad", "k8s\x00\x0agarbage"+rand.Text()); err != nil {
		t.Fatal(err)
	}
	create(t, s, "c", "n", "good", nil)
	for _, want := range []watch.EventType{watch.Deleted, watch.Added} {
		select {
		case e := <-events.ResultChan():
			if e.Type != want {
				t.Errorf("got %+v, want %s", e, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event, want %s", want)
		}
	}
	if diff := cmp.Diff([]string{"a|n/good", "b|n/good", "b|n/late", "c|n/good"}, list(t, s, "*", "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a|n/bad", "a|n/good"}, list(t, s, "a", "")); diff != "" {
		t.Error(diff)
	}
	if err := s.Get(in("a"), prefix+"/n/bad", storage.GetOptions{}, &core.ConfigMap{}); !IsUnreadable(err) || apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
		t.Error(err)
	}
	if err := s.Get(deleting("a"), prefix+"/n/bad", storage.GetOptions{}, &core.ConfigMap{}); err != nil {
		t.Error(err)
	}
	if err := s.Delete(deleting("a"), prefix+"/n/bad", &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a|n/good"}, list(t, s, "a", "")); diff != "" {
		t.Error(diff)
	}
	if after, err := testutil.GetCounterMetricValue(backend.reports.count); err != nil || after != before+1 {
		t.Errorf("the metric was %v and is %v: %v", before, after, err)
	}
}
