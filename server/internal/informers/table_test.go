package informers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestATableHasWhatAMapHas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	actual, want := newTable(), map[string]string{}
	for step := range 200_000 {
		key := fmt.Sprint("k", random.IntN(1+step%5_000))
		switch n := random.IntN(10); {
		case n < 4:
			value := strings.Repeat(fmt.Sprint(step), random.IntN(30))
			actual.set(key, value)
			want[key] = value
		case n < 7:
			_, existed := want[key]
			if actual.remove(key) != existed {
				t.Fatalf("step %d: removed %s: %t, want %t", step, key, !existed, existed)
			}
			delete(want, key)
		default:
			value, ok := actual.get(key, "")
			if expected, there := want[key]; value != expected || ok != there || actual.has(key) != there {
				t.Fatalf("step %d: %s is %q, %t, want %q, %t", step, key, value, ok, expected, there)
			}
		}
	}
	keys := actual.keys()
	slices.Sort(keys)
	if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("%d keys, want %d", len(keys), len(want))
	}
	for key, value := range want {
		if got, ok := actual.get(key, ""); got != value || !ok {
			t.Errorf("%s is %q, %t, want %q", key, got, ok, value)
		}
	}
}

func TestATableReturnsTheGivenStringIfItIsEqual(t *testing.T) {
	x, value := newTable(), strings.Repeat("v", 100)
	x.set("a", value)
	if n := testing.AllocsPerRun(100, func() { x.get("a", value) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got, ok := x.get("a", "other"); got != value || !ok {
		t.Errorf("%q, %t", got, ok)
	}
}

func TestChangesAndRemovalsOfATableFreeMemory(t *testing.T) {
	x := newTable()
	size := func() (data, slots int) {
		for n := range x.parts {
			data, slots = data+cap(x.parts[n].data), slots+len(x.parts[n].slots)
		}
		return data, slots
	}
	value := strings.Repeat("v", 200)
	for round := range 10 {
		for n := range 20_000 {
			x.set(fmt.Sprint(n), fmt.Sprint(value, round))
		}
	}
	if data, slots := size(); data > 20_000*220*3/2 || slots > 20_000*4 {
		t.Errorf("after changes: %d bytes, %d slots", data, slots)
	}
	for n := range 20_000 {
		x.remove(fmt.Sprint(n))
	}
	if data, slots := size(); data > parts*2*leastUnused || slots > parts*fewestSlots || x.count != 0 {
		t.Errorf("after removals: %d bytes, %d slots, %d entries", data, slots, x.count)
	}
}

func TestATableTakesLessMemoryThanAMap(t *testing.T) {
	const n = 100_000
	value := strings.Repeat("v", 120)
	x := newTable()
	filled := func(fill func()) (bytes, objects uint64) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		fill()
		runtime.GC()
		runtime.ReadMemStats(&after)
		return after.HeapAlloc - before.HeapAlloc, after.HeapObjects - before.HeapObjects
	}
	m := map[string]string{}
	mapBytes, mapObjects := filled(func() {
		for i := range n {
			key, v := together(fmt.Sprintf("cluster%d|cluster", i), value)
			m[key] = v
		}
	})
	tableBytes, tableObjects := filled(func() {
		for i := range n {
			x.set(fmt.Sprintf("cluster%d|cluster", i), value)
		}
	})
	t.Logf("each: table %d bytes, map %d; all: table %d objects, map %d", tableBytes/n, mapBytes/n, tableObjects, mapObjects)
	if tableBytes*100 > mapBytes*90 || tableObjects > 10*parts {
		t.Errorf("the table takes %d bytes in %d objects, a map %d in %d", tableBytes, tableObjects, mapBytes, mapObjects)
	}
	runtime.KeepAlive(m)
	runtime.KeepAlive(x)
}
