package storage

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

// kinds returns a ConfigMap with its storage, and storage of another resource with an object of its own.
func kinds(t *testing.T) (maps, others storage.Interface, aMap *core.ConfigMap, another *core.ConfigMap) {
	t.Helper()
	maps = configMaps(t)
	other := *maps.(*clusterStorage)
	other.resource = schema.GroupResource{Resource: "others"}
	named := func(name string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	}
	return maps, &other, named("first"), named("second")
}

func TestATransactionCreatesAllOfItsObjectsAtOnce(t *testing.T) {
	maps, others, first, second := kinds(t)
	both, out := &Transaction{}, &core.ConfigMap{}
	if err := maps.Create(both.Hold(in("a")), prefix+"/n/first", first, nil, 0); err != nil {
		t.Fatal(err)
	}
	if found := list(t, maps, "a", ""); len(found) != 0 {
		t.Errorf("before the transaction ends there is %v", found)
	}
	if err := others.Create(both.Commit(in("b")), prefix+"/n/second", second, out, 0); err != nil {
		t.Fatal(err)
	}
	if a, b := list(t, maps, "a", ""), list(t, maps, "b", ""); len(a) != 1 || len(b) != 1 {
		t.Errorf("there is %v and %v", a, b)
	}
	stored := &core.ConfigMap{}
	if err := maps.Get(in("a"), prefix+"/n/first", storage.GetOptions{}, stored); err != nil || stored.ResourceVersion != out.ResourceVersion || out.ResourceVersion == "" {
		t.Errorf("the versions are %q and %q, %v", stored.ResourceVersion, out.ResourceVersion, err)
	}
}

func TestATransactionCreatesNothingIfSomethingExists(t *testing.T) {
	for _, existing := range []string{"first", "second"} {
		t.Run(existing, func(t *testing.T) {
			maps, others, first, second := kinds(t)
			create(t, maps, "a", "n", existing, nil)
			both := &Transaction{}
			if err := maps.Create(both.Hold(in("a")), prefix+"/n/first", first, nil, 0); err != nil {
				t.Fatal(err)
			}
			if err := others.Create(both.Commit(in("a")), prefix+"/n/second", second, nil, 0); !storage.IsExist(err) {
				t.Errorf("got %v", err)
			}
			if found := list(t, maps, "a", ""); len(found) != 1 {
				t.Errorf("there is %v", found)
			}
		})
	}
}

func TestATransactionTakesOneObjectOfAResource(t *testing.T) {
	maps, _, first, second := kinds(t)
	both := &Transaction{}
	if err := maps.Create(both.Hold(in("a")), prefix+"/n/first", first, nil, 0); err != nil {
		t.Fatal(err)
	}
	err := maps.Create(both.Commit(in("a")), prefix+"/n/second", second, nil, 0)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "configmaps") {
		t.Errorf("got %v", err)
	}
}
