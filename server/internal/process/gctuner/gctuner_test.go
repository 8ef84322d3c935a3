package gctuner

import (
	"runtime"
	"runtime/debug"
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
		{"idle", 1024 * mib, 100 * mib, 2 * time.Minute, 6},
		{"moderate: the allocations of eight seconds", 100 * mib, 20 * mib, time.Second, 160},
		{"moderate and large: the allocations of ten seconds", 500 * mib, 40 * mib, time.Second, 80},
		{"busy: bounded", 100 * mib, 100 * mib, 100 * time.Millisecond, 384},
		{"busy and large: as much garbage as live memory", 512 * mib, 1024 * mib, 100 * time.Millisecond, 100},
		{"very large: less garbage than live memory", 4096 * mib, 1024 * mib, time.Second, 21},
		{"very large and idle", 4096 * mib, 1024 * mib, time.Hour, 6},
		{"larger than all bounds", 8192 * mib, 1024 * mib, time.Second, 10},
	} {
		if got := percent(c.live, c.allocated, c.in); got != c.want {
			t.Errorf("%s: %d %%, want %d", c.what, got, c.want)
		}
	}
}

// tunerAfter returns a tuner of a process whose last collection was some time ago, and what it sets.
func tunerAfter(since time.Duration, allowed int) (t *tuner, set *[]int) {
	set = &[]int{}
	t = newTuner(time.Now().Add(-since))
	t.percent = allowed
	t.set = func(percent int) int { *set = append(*set, percent); return 0 }
	t.release = func() {}
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

func TestGarbageIsReducedWhenTheRateFalls(t *testing.T) {
	runtime.GC()
	moderate, set := tunerAfter(time.Minute, 0)
	live, allocated := moderate.read()
	const rate = 20 * mib // bytes per second
	usual := percent(live, rate, time.Second)
	since := func(rate uint64) { // the last check
		moderate.checked, moderate.seen = time.Now().Add(-pause), allocated-rate*uint64(pause/time.Second)
		moderate.late()
	}
	moderate.percent = usual
	moderate.allocated = allocated - 100*rate // more since the last collection
	if since(rate); moderate.percent < usual/2 {
		t.Errorf("at the same rate, garbage of %d %% is allowed instead of %d", moderate.percent, usual)
	}
	if since(0); moderate.percent != percentOf(idleGarbage(live), live) {
		t.Errorf("without allocations, garbage of %d %% is allowed; set %v", moderate.percent, *set)
	}
}

func TestGarbageIsNotIncreasedWithoutACollection(t *testing.T) {
	busy, set := tunerAfter(time.Nanosecond, 1)
	if busy.late(); len(*set) != 0 {
		t.Errorf("set %v", *set)
	}
}

// leaveUnused makes the process have much more memory than it uses.
func leaveUnused() {
	kept := make([]byte, 512*mib)
	for i := 0; i < len(kept); i += 4096 {
		kept[i] = 1
	}
	runtime.KeepAlive(kept)
	kept = nil
	runtime.GC()
}

// idleWithUnused returns a tuner of an idle process that has unused memory, which the test returns to the system by idled.
func idleWithUnused(t *testing.T, release func()) *tuner {
	t.Helper()
	leaveUnused()
	idle, _ := tunerAfter(24*time.Hour, 100)
	idle.release = release
	idle.late()
	if idle.rest == nil {
		t.Fatal("no memory is returned later")
	}
	idle.rest.Stop()
	return idle
}

func TestMemoryIsReturnedWhenTheProcessStaysIdle(t *testing.T) {
	released := 0
	idle := idleWithUnused(t, func() { released++ })
	idle.idled()
	if released != 1 || idle.rest != nil || idle.released.IsZero() {
		t.Errorf("memory was returned %d times, next time set: %t", released, idle.rest != nil)
	}
	idle.idled()
	if released != 1 {
		t.Error("memory was returned again without a reason")
	}
}

func TestMemoryIsKeptWhileTheProcessIsBusy(t *testing.T) {
	busy := idleWithUnused(t, func() { t.Error("memory was returned") })
	rest := busy.rest
	busy.at = time.Now() // much was allocated since
	busy.idled()
	busy.at, busy.rest = time.Now(), rest
	busy.collected()
	if busy.rest != nil {
		t.Error("memory will be returned although the process is busy")
	}
	busy.idled()
}

// returnAll returns the memory that other tests do not use any more to the system.
func returnAll(t *tuner) {
	runtime.GC()
	for i := range 100 {
		if t.read(); i > 0 && t.samples[3].Value.Uint64() < mib {
			break
		}
		debug.FreeOSMemory()
	}
}

func TestMemoryInUseIsNotReturned(t *testing.T) {
	idle, _ := tunerAfter(24*time.Hour, 100)
	returnAll(idle)
	idle.late()
	if idle.rest != nil {
		t.Error("memory will be returned although all of it is in use")
	}
}

func TestMemoryIsNotReturnedWhenItIsUsedAgain(t *testing.T) {
	idle := idleWithUnused(t, func() { t.Error("memory was returned") })
	returnAll(idle)
	idle.idled()
	if idle.rest != nil || !idle.released.IsZero() {
		t.Error("memory counts as returned")
	}
}

func TestWhatASmallProcessHasUsedToStartIsReturned(t *testing.T) {
	started, _ := tunerAfter(time.Second, 100)
	released := 0
	started.release = func() { released++ }
	if started.started(); released != 1 {
		t.Errorf("memory was returned %d times, want once", released)
	}
	much := make([]byte, least)
	if started.started(); released != 1 {
		t.Error("a process with much memory returned it")
	}
	runtime.KeepAlive(much)
}
