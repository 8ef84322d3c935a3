package garbagecollector

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func owned(name string, owners ...types.UID) (object, metav1.Object) {
	m := &metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}
	for _, uid := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{UID: uid})
	}
	return object{Cluster: "c", Namespace: "default", Name: name}, m
}

func TestTheGraphHasTheDependentsOfEveryOwner(t *testing.T) {
	g, model := newGraph(), map[string][]types.UID{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		name := fmt.Sprint("o", random.IntN(6))
		var owners []types.UID
		for i := range random.IntN(4) {
			owners = append(owners, types.UID(fmt.Sprint("u", random.IntN(3)+i)))
		}
		o, m := owned(name, owners...)
		if model[name] = owners; random.IntN(3) == 0 {
			delete(model, name)
			g.remove(o)
		} else {
			g.set(o, m)
		}
		named := map[types.UID]bool{}
		for i := range 6 {
			uid := types.UID(fmt.Sprint("u", i))
			var want, got []string
			for name, owners := range model {
				if slices.Contains(owners, uid) {
					want = append(want, name)
					named[uid] = true
				}
			}
			for _, n := range g.dependentsOf(owner{"c", uid}) {
				got = append(got, n.Name)
			}
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("dependents of %s are %v, want %v", uid, got, want)
			}
		}
		if len(g.dependents) != len(named) {
			t.Fatalf("the graph has %d owners, want %d", len(g.dependents), len(named))
		}
	}
}

// An object of 150 kB refers to a thousand owners.
func TestAnOwnerWithOneDependentTakesLittleMemory(t *testing.T) {
	g := newGraph()
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	const objects, owners = 20, 1000
	before := heap()
	for i := range objects {
		uids := make([]types.UID, owners)
		for j := range uids {
			uids[j] = types.UID(fmt.Sprintf("%08d-0000-0000-0000-%012d", i, j))
		}
		g.set(owned(fmt.Sprint("o", i), uids...))
	}
	if each := (heap() - before) / objects / owners; each > 400 {
		t.Errorf("each owner takes %d bytes", each)
	}
	runtime.KeepAlive(g)
}
