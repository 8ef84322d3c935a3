package informers

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// labelled is an object with some of four values.
func labelled(values int) runtime.Object {
	if values == 0 {
		return nil
	}
	var names []string
	for n, name := range []string{"a", "b", "c", "d"} {
		if values&(1<<n) != 0 {
			names = append(names, name)
		}
	}
	return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Finalizers: names}}
}

func TestAnIndexHasTheKeysOfTheValuesThatObjectsHave(t *testing.T) {
	index := newKeyIndex(func(obj any) ([]string, error) { return obj.(*apisv1alpha2.APIExport).Finalizers, nil })
	state := map[string]int{}
	for range 5000 {
		key, values := string(rune('k'+rand.IntN(4))), rand.IntN(16)
		index.replace(key, labelled(state[key]), labelled(values))
		state[key] = values
		for n, value := range []string{"a", "b", "c", "d"} {
			var want []string
			for key, values := range state {
				if values&(1<<n) != 0 {
					want = append(want, key)
				}
			}
			got := index.find(value)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("the value %s has the keys %v, want %v", value, got, want)
			}
		}
	}
	for key, values := range state {
		index.replace(key, labelled(values), nil)
	}
	if len(index.keys) != 0 {
		t.Errorf("left %v", index.keys)
	}
}

func TestAnIndexOfAnInformerFollowsItsObjects(t *testing.T) {
	export := func(name, owner string) runtime.Object {
		return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: "c"}, Finalizers: []string{owner},
		}}
	}
	i, err := NewPacked(apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"), &apisv1alpha2.APIExport{}, nil, func(runtime.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	store := (*deliveringStore)(i)
	put := func(obj runtime.Object) {
		t.Helper()
		if err := store.Update(obj); err != nil {
			t.Fatal(err)
		}
	}
	put(export("before", "a"))
	index := i.NewIndex(func(obj runtime.Object) []string { return obj.(*apisv1alpha2.APIExport).Finalizers })
	put(export("moved", "a"))
	put(export("moved", "b"))
	put(export("deleted", "a"))
	if err := store.Delete(export("deleted", "a")); err != nil {
		t.Fatal(err)
	}
	for value, name := range map[string]string{"a": "before", "b": "moved"} {
		if diff := cmp.Diff([]Key{{Cluster: "c", Name: name}}, index.Find(value)); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
	}
}

func TestKeysOfOfferedObjectsAreReversible(t *testing.T) {
	for _, key := range []OfferedKey{
		{"east", Key{Cluster: "a", Name: "name"}}, {"east", Key{Cluster: "a", Name: "with|bar:and.more"}},
		{"east", Key{Cluster: "a", Namespace: "b", Name: "with|bar"}},
	} {
		if got := offeredKey(remoteKey(key.Shard, key.Key.String())); got != key {
			t.Errorf("got %+v, want %+v", got, key)
		}
	}
}

func TestExportsOfOtherShardsKeepAllFields(t *testing.T) {
	s := newShared(t)
	s.holders["elsewhere"] = "east"
	fill := randfill.NewWithSeed(rand.Int64()).NilChance(0.3).NumElements(1, 3).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0) },
		func(*[]metav1.ManagedFieldsEntry, randfill.Continue) {},
	)
	for range 100 {
		want := &apisv1alpha2.APIExport{}
		fill.Fill(want)
		want.Name, want.Namespace, want.Annotations = "cars", "", map[string]string{logicalcluster.AnnotationKey: "elsewhere"}
		want.Status.IdentityHash = strings.Repeat("x", 1+rand.IntN(3))
		s.offer(t, s.APIExports.Informer, "east", want)
		found, err := s.APIExports.Get("elsewhere", "", "cars")
		if err != nil || !reflect.DeepEqual(found, want) {
			t.Fatalf("got %v, %s", err, cmp.Diff(want, found))
		}
		if again, _ := s.APIExports.Get("elsewhere", "", "cars"); again != found {
			t.Fatal("a second look-up unpacks the object again")
		}
		for _, identity := range []string{"x", "xx", "xxx"} {
			matching, err := s.APIExports.ByIndex("identity", identity)
			if err != nil || (len(matching) == 1) != (identity == want.Status.IdentityHash) {
				t.Fatalf("got %v, %v for identity %s, want %v", matching, err, identity, want)
			}
		}
	}
}
