package storage

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	acknowledged := backend.Acknowledged(schema.GroupResource{Resource: "configmaps"})
	before := acknowledged.Last("a")
	if err := maps.Create(both.Hold(in("a")), prefix+"/n/first", first, nil, 0); err != nil {
		t.Fatal(err)
	}
	if found := list(t, maps, "a", ""); len(found) != 0 {
		t.Errorf("before the transaction ends there is %v", found)
	}
	if got := acknowledged.Last("a"); got != before {
		t.Errorf("before the transaction ends %d is acknowledged", got)
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
	if got := acknowledged.Last("a"); got != storedVersion(t, out) {
		t.Errorf("%d is acknowledged, want %s", got, out.ResourceVersion)
	}
}

func TestATransactionCreatesNothingIfAnObjectExists(t *testing.T) {
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

// counted is a limit that records the results for objects.
type counted struct {
	unlimited
	stored, dropped int
}

func (c *counted) Add(context.Context, schema.GroupResource, runtime.Object) (func(bool), error) {
	return func(stored bool) {
		if stored {
			c.stored++
		} else {
			c.dropped++
		}
	}, nil
}

func TestLimitsCountTheObjectsOfATransaction(t *testing.T) {
	for _, c := range []struct {
		what            string
		commit, exists  bool
		stored, dropped int
	}{{"committed", true, false, 2, 0}, {"refused", true, true, 0, 2}, {"given up", false, false, 0, 1}} {
		t.Run(c.what, func(t *testing.T) {
			maps, others, first, second := kinds(t)
			if c.exists {
				create(t, maps, "a", "n", "first", nil)
			}
			limit := &counted{}
			maps.(*clusterStorage).limit, others.(*clusterStorage).limit = limit, limit
			both := &Transaction{}
			if err := maps.Create(both.Hold(in("a")), prefix+"/n/first", first, nil, 0); err != nil || limit.stored+limit.dropped != 0 {
				t.Fatalf("while it is held: %+v, %v", limit, err)
			}
			if c.commit {
				if err := others.Create(both.Commit(in("a")), prefix+"/n/second", second, nil, 0); (err != nil) != c.exists {
					t.Error(err)
				}
			}
			both.End()
			if limit.stored != c.stored || limit.dropped != c.dropped {
				t.Errorf("got %+v", limit)
			}
		})
	}
}

func TestATransactionHasOneObjectOfEachResource(t *testing.T) {
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
