package informers

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func accountOf(cluster, namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}}
}

func namespaceOf(cluster, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}}
}

// byLabel is an index by the values of labels.
func byLabel(obj any) ([]string, error) {
	var values []string
	for _, value := range obj.(metav1.Object).GetLabels() {
		values = append(values, value)
	}
	return values, nil
}

// orderedStores returns a store of each form, with an index by labels.
func orderedStores(t *testing.T, example kruntime.Object) map[string]cache.Indexer {
	t.Helper()
	form, err := newPackedForm(example, 8, newDetector(corev1.SchemeGroupVersion.WithResource("examples")))
	if err != nil {
		t.Fatal(err)
	}
	indexers := cache.Indexers{"label": byLabel}
	return map[string]cache.Indexer{"as they are": newOrdered(asTheyAre{}, indexers), "packed": newOrdered(form, indexers)}
}

// sorted returns the namespaces and names of objects with their versions.
func sorted(t *testing.T, objects []any) []string {
	t.Helper()
	var all []string
	for _, obj := range objects {
		key, err := storeKey(obj)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key+" "+obj.(metav1.Object).GetResourceVersion())
	}
	slices.Sort(all)
	return all
}

func TestAStoreInOrderFindsWhatAnIndexerOfClientGoFinds(t *testing.T) {
	for name, store := range orderedStores(t, &corev1.ServiceAccount{}) {
		t.Run(name, func(t *testing.T) {
			want := cache.NewIndexer(storeKey, cache.Indexers{byCluster: clusterIndex, byNamespace: namespaceIndex, "label": byLabel})
			pick := func(from ...string) string { return from[rand.IntN(len(from))] }
			for n := range 3000 {
				// One name of a cluster, a namespace and an object is the beginning of another.
				obj := accountOf(pick("a", "aa", "b"), pick("n", "nn", "n-n"), pick("x", "xx", "x|y", "x:y"))
				obj.ResourceVersion = fmt.Sprint(n)
				if rand.IntN(2) == 0 {
					obj.Labels = map[string]string{"l": pick("v", "w")}
				}
				change := func(s cache.Indexer) error { return s.Update(obj.DeepCopy()) }
				if rand.IntN(3) == 0 {
					change = func(s cache.Indexer) error { return s.Delete(obj) }
				}
				for _, s := range []cache.Indexer{store, want} {
					if err := change(s); err != nil {
						t.Fatal(err)
					}
				}
				index, value := byCluster, pick("a", "aa", "b", "")
				switch rand.IntN(3) {
				case 0:
					index, value = byNamespace, value+"|"+pick("n", "nn", "n-n")
				case 1:
					index, value = "label", pick("v", "w")
				}
				found, err := store.ByIndex(index, value)
				if err != nil {
					t.Fatal(err)
				}
				expected, _ := want.ByIndex(index, value)
				if got, expected := sorted(t, found), sorted(t, expected); !slices.Equal(got, expected) {
					t.Fatalf("%s %s: got %v, want %v", index, value, got, expected)
				}
				values, expectedValues := store.ListIndexFuncValues(index), want.ListIndexFuncValues(index)
				slices.Sort(values)
				slices.Sort(expectedValues)
				if !slices.Equal(values, expectedValues) {
					t.Fatalf("the index %s has %v, want %v", index, values, expectedValues)
				}
			}
			if got, expected := sorted(t, store.List()), sorted(t, want.List()); !slices.Equal(got, expected) {
				t.Errorf("got %v, want %v", got, expected)
			}
		})
	}
}

func TestObjectsWithEqualBytesAreNotMixed(t *testing.T) {
	for name, store := range orderedStores(t, &corev1.ServiceAccount{}) {
		t.Run(name, func(t *testing.T) {
			for n := range 100 { // without UIDs and versions, all have the same bytes
				if err := store.Add(accountOf(fmt.Sprint("c", n), "n", fmt.Sprint("x", n))); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for n := range 100 {
					want := accountOf(fmt.Sprint("c", n), "n", fmt.Sprint("x", n))
					if got, ok, err := store.Get(want); !ok || err != nil || !reflect.DeepEqual(got, want) {
						t.Fatalf("got %v %t %v, want %v", got, ok, err, want)
					}
				}
			}
		})
	}
}

func TestAPackedObjectHasWhatItHadBefore(t *testing.T) {
	form, err := newPackedForm(&corev1.Namespace{}, 8, newDetector(corev1.SchemeGroupVersion.WithResource("namespaces")))
	if err != nil {
		t.Fatal(err)
	}
	obj := namespaceOf("c", "default")
	obj.UID, obj.Labels = "3f5c", map[string]string{"kubernetes.io/metadata.name": "default"}
	for _, more := range []map[string]string{nil, {"example.org/about": "it"}} {
		for key, value := range more {
			obj.Annotations[key] = value
		}
		before := obj.DeepCopy()
		key, data := form.keep("c|default", obj)
		if !reflect.DeepEqual(obj, before) {
			t.Fatalf("packing changes the object: got %v, want %v", obj, before)
		}
		if got := form.object(key, data); !reflect.DeepEqual(got, before) {
			t.Errorf("got %v, want %v", got, before)
		}
	}
}

func TestReadersOfAStoreInOrderSeeWholeObjects(t *testing.T) {
	for name, store := range orderedStores(t, &corev1.Namespace{}) {
		t.Run(name, func(t *testing.T) {
			var readers sync.WaitGroup
			done := make(chan struct{})
			for range 4 {
				readers.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						found, err := store.ByIndex(byCluster, "c")
						if err != nil {
							t.Error(err)
							return
						}
						for _, obj := range found {
							if ns := obj.(*corev1.Namespace); string(ns.UID) != ns.Name+ns.ResourceVersion {
								t.Errorf("got %v", ns)
								return
							}
						}
					}
				})
			}
			for n := range 2000 {
				ns := namespaceOf("c", fmt.Sprint("n", n%7))
				ns.ResourceVersion = fmt.Sprint(n)
				ns.UID = types.UID(ns.Name + ns.ResourceVersion)
				if err := store.Update(ns); err != nil {
					t.Fatal(err)
				}
			}
			close(done)
			readers.Wait()
		})
	}
}

// certificates are the value that all ConfigMaps of certificates have.
var certificates = strings.Repeat("certificate\n", 100)

// defaultObjects are the default objects of a namespace as informers receive them.
func defaultObjects(n int, namespace string) []kruntime.Object {
	uid := func(kind int) types.UID { return types.UID(fmt.Sprintf("13569ebc-%04x-4fa2-bd32-%012x", kind, n)) }
	objects := []kruntime.Object{namespaceOf("", namespace), accountOf("", namespace, "default"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: RootCAConfigMap, Namespace: namespace, Annotations: map[string]string{
			"kubernetes.io/description": strings.Repeat("Contains a CA bundle. ", 10),
		}},
		Data: map[string]string{"ca.crt": certificates},
	}}
	for kind, obj := range objects {
		m := obj.(metav1.Object)
		m.SetUID(uid(kind))
		m.SetResourceVersion(fmt.Sprint(100_000 + n))
		m.SetCreationTimestamp(metav1.Unix(1_800_000_000, 0))
		annotations := m.GetAnnotations()
		annotations[logicalcluster.AnnotationKey] = fmt.Sprintf("cluster%09d", n)
		m.SetAnnotations(annotations)
	}
	return objects
}

func TestDefaultObjectsTakeLittleMemory(t *testing.T) {
	const clusters, limit = 4000, 1500
	ordered := map[string]cache.Indexer{}
	for _, example := range []kruntime.Object{&corev1.Namespace{}, &corev1.ServiceAccount{}} {
		ordered[fmt.Sprintf("%T", example)] = orderedStores(t, example)["packed"]
	}
	maps, err := newPacked(&corev1.ConfigMap{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	maps.codec.Know(certificates) // as the server does
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range clusters {
		for _, namespace := range []string{"default", "kube-system"} {
			for _, obj := range defaultObjects(n, namespace) {
				key, err := storeKey(obj)
				if store, ok := ordered[fmt.Sprintf("%T", obj)]; ok && err == nil {
					err = store.Add(obj)
				} else if err == nil {
					err = maps.set(key, obj)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / clusters
	t.Logf("the default objects of a logical cluster take %d bytes", each)
	if each > limit {
		t.Errorf("the default objects of a logical cluster take %d bytes in the informers, want at most %d", each, limit)
	}
	runtime.KeepAlive(ordered)
	runtime.KeepAlive(maps)
}
