// Package gctuner delays garbage collections in a busy process, and makes an idle one small. A collection costs as much as there is live
// memory; under load, Go would collect a small heap many times per second for little garbage. What a busy process has used, Go would keep
// for later: up to a tenth more than live memory and garbage together.
package gctuner

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// interval is the least time between collections at the present rate of allocation, if their garbage is within the bounds, and
	// perSecond how many live bytes make it a second, so that collections take about the same share of a processor in all processes.
	// A collection delays requests, by 50 to 200 ms if several processes share two processors.
	interval, perSecond = 8 * time.Second, 50 << 20
	// pause is the least time without much allocation after which a process counts as idle.
	pause = 2 * time.Second
	// least and most are bounds of the garbage in a busy process, in bytes. In between, the garbage may be as large as the live memory.
	least, most = 384 << 20, 896 << 20
	// idle is the garbage in an idle process, in bytes, or as a share of the live memory if that is more.
	idle, idleShare = 32 << 20, 16
	// unusedShare is how much memory without live objects an idle process keeps, as a multiple of the garbage that it may have.
	unusedShare = 2
	// restWindows is how many windows are between two times that memory is returned to the system, which takes a collection, and later
	// the time to get the memory again.
	restWindows = 4
)

// Tune starts to adapt the garbage collector of the process, unless the environment sets GOGC. The caller calls started when the process is
// ready: what the start has used is returned to the system then.
func Tune() (started func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	t := newTuner(time.Now())
	t.arm()
	return func() { go t.started() }
}

func newTuner(at time.Time) *tuner {
	return &tuner{
		samples: []metrics.Sample{
			{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/memory/classes/heap/free:bytes"},
		},
		at: at, checked: at, set: debug.SetGCPercent, release: debug.FreeOSMemory,
	}
}

// tuner allows garbage for the rate of allocation since the last collection, and less when that falls without a collection. It then returns
// what the process does not use any more to the system.
type tuner struct {
	mu        sync.Mutex
	samples   []metrics.Sample
	at        time.Time // of the last collection
	allocated uint64    // by then, in bytes
	percent   int
	set       func(percent int) int
	check     *time.Timer // nil after the last collection if no less garbage will be allowed
	checked   time.Time   // of the last collection or check
	seen      uint64      // allocated by then, in bytes

	release  func()      // collects garbage, and returns unused memory to the system
	released time.Time   // zero if release was never called
	rest     *time.Timer // calls release if the process stays idle
}

// started returns what the start has used to the system, unless the process has much memory: it then works on after it is ready, and needs
// the memory again.
func (t *tuner) started() {
	t.mu.Lock()
	t.read()
	small := t.held() < least
	if small {
		t.released = time.Now()
	}
	t.mu.Unlock()
	if small {
		t.release() // not with mu locked, because a collection calls collected
	}
}

// arm makes the runtime call collected after the next collection.
func (t *tuner) arm() {
	runtime.SetFinalizer(&struct{ _ [16]byte }{}, func(any) { t.collected() })
}

func (t *tuner) collected() {
	defer t.arm()
	t.mu.Lock()
	defer t.mu.Unlock()
	live, allocated := t.read()
	now := time.Now()
	t.allow(live, percent(live, allocated-t.allocated, now.Sub(t.at)))
	t.at, t.allocated = now, allocated
	t.checked, t.seen = now, allocated
}

// late allows less garbage if the process allocates less than before the last collection: the next one would not be for a long time.
func (t *tuner) late() {
	t.mu.Lock()
	defer t.mu.Unlock()
	live, allocated := t.read()
	now := time.Now()
	t.allow(live, min(t.percent, percent(live, allocated-t.seen, now.Sub(t.checked))))
	t.checked, t.seen = now, allocated
}

// read returns the live memory after the last collection, and what was allocated since the start.
func (t *tuner) read() (live, allocated uint64) {
	metrics.Read(t.samples)
	return t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64()
}

// allow sets the garbage to allow, and checks it again later if an idle process has less; t.mu is held.
func (t *tuner) allow(live uint64, percent int) {
	if percent != t.percent {
		t.percent = percent
		t.set(percent)
	}
	if t.check != nil {
		t.check.Stop()
		t.check = nil
	}
	if live == 0 {
		return
	}
	if percent > percentOf(idleGarbage(live), live) {
		t.check = time.AfterFunc(window(live), t.late)
	}
	switch {
	case !rests(live, percent):
		t.stay()
	case t.rest == nil && t.keepsMuch(live):
		t.rest = time.AfterFunc(max(pause, restWindows*window(live)-time.Since(t.released)), t.idled)
	}
}

// rests reports whether a process for which so much garbage is allowed is about idle.
func rests(live uint64, percent int) bool {
	return percent <= percentOf(unusedShare*idleGarbage(live), live)
}

// stay keeps unused memory, because the process is busy; t.mu is held.
func (t *tuner) stay() {
	if t.rest != nil {
		t.rest.Stop()
		t.rest = nil
	}
}

// held returns the memory of objects, and the memory without objects that is not returned to the system; t.mu is held, and read was called.
func (t *tuner) held() uint64 { return t.samples[2].Value.Uint64() + t.samples[3].Value.Uint64() }

// unused returns the garbage, and the memory without objects that is not returned to the system; t.mu is held, and read was called.
func (t *tuner) unused(live uint64) uint64 {
	return t.held() - min(live, t.samples[2].Value.Uint64())
}

// keepsMuch reports whether a process that is idle has more unused memory than it should; t.mu is held, and read was called.
func (t *tuner) keepsMuch(live uint64) bool { return t.unused(live) > unusedShare*idleGarbage(live) }

// idled returns unused memory to the system, unless the process is busy again, or has little: right after a collection, much of it is the
// garbage that the runtime is about to sweep.
func (t *tuner) idled() {
	t.mu.Lock()
	if t.rest == nil {
		t.mu.Unlock()
		return
	}
	t.rest = nil
	live, allocated := t.read()
	still := rests(live, percent(live, allocated-t.allocated, time.Since(t.at))) && t.keepsMuch(live)
	if still {
		t.released = time.Now()
	}
	t.mu.Unlock()
	if still {
		t.release() // not with mu locked, because a collection calls collected
	}
}

// percent returns the garbage to allow, in percent of the live memory, after a number of bytes were allocated in a time.
func percent(live, allocated uint64, in time.Duration) int {
	if live == 0 || in <= 0 {
		return 100 // Go's default
	}
	wanted := uint64(float64(allocated) * float64(period(live)) / float64(in))
	return percentOf(max(min(wanted, busyGarbage(live)), idleGarbage(live)), live)
}

// period returns the time between collections of a process that is neither idle nor so busy that its garbage is bounded.
func period(live uint64) time.Duration { return atLeast(interval, live) }

// window returns the time for which the rate of allocation is measured before a process counts as idle.
func window(live uint64) time.Duration { return atLeast(pause, live) }

// atLeast returns a time, or a longer one if there are many live bytes.
func atLeast(least time.Duration, live uint64) time.Duration {
	return max(least, time.Duration(float64(live)/perSecond*float64(time.Second)))
}

func busyGarbage(live uint64) uint64 { return min(max(live, least), most) }
func idleGarbage(live uint64) uint64 { return min(max(live/idleShare, idle), most) }

func percentOf(garbage, live uint64) int { return int(garbage * 100 / live) }
