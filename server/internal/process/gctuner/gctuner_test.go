package gctuner

import (
	"runtime/metrics"
	"testing"
	"time"
)

const mib = 1 << 20

func TestGarbageDependsOnTheRateOfAllocationAndOnTheLiveMemory(t *testing.T) {
	for _, c := range []struct {
		what            string
		live, allocated uint64
		in              time.Duration
		want            int
	}{
		{"no samples", 0, 0, 0, 100},
		{"small and idle", 64 * mib, 64 * mib, 2 * time.Minute, 50},
		{"idle", 512 * mib, 100 * mib, 2 * time.Minute, 25},
		{"moderate: the allocations of four seconds", 100 * mib, 50 * mib, time.Second, 200},
		{"moderate and large: the allocations of ten seconds", 500 * mib, 40 * mib, time.Second, 80},
		{"busy: bounded", 100 * mib, 100 * mib, 100 * time.Millisecond, 384},
		{"busy and large: as much garbage as live memory", 512 * mib, 1024 * mib, 100 * time.Millisecond, 100},
		{"very large: less garbage than live memory", 4096 * mib, 1024 * mib, time.Second, 25},
		{"very large and idle", 4096 * mib, 1024 * mib, time.Hour, 25},
		{"larger than all bounds", 8192 * mib, 1024 * mib, time.Second, 12},
	} {
		if got := percent(c.live, c.allocated, c.in); got != c.want {
			t.Errorf("%s: %d %%, want %d", c.what, got, c.want)
		}
	}
}

// tunerAfter returns a tuner of a process whose last collection was some time ago, and what it sets.
func tunerAfter(since time.Duration, allowed int) (t *tuner, set *[]int) {
	set = &[]int{}
	t = &tuner{
		samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}, at: time.Now().Add(-since), percent: allowed,
		set: func(percent int) int { *set = append(*set, percent); return 0 },
	}
	return t, set
}

func TestGarbageIsReducedWithoutACollectionWhenTheProcessIsIdle(t *testing.T) {
	idle, set := tunerAfter(24*time.Hour, 1<<30)
	live, _ := idle.read()
	idle.late()
	want := percentOf(idleGarbage(max(live, 1)), max(live, 1))
	if live == 0 {
		want = 100
	}
	if len(*set) != 1 || (*set)[0] != want || idle.check != nil {
		t.Errorf("set %v, want %d; another check: %t", *set, want, idle.check != nil)
	}
}

func TestGarbageIsNotIncreasedWithoutACollection(t *testing.T) {
	busy, set := tunerAfter(time.Nanosecond, 1)
	if busy.late(); len(*set) != 0 {
		t.Errorf("set %v", *set)
	}
}
