// Package gctuner delays garbage collections in a busy process. A collection costs as much as there is live memory; under load, Go would
// collect a small heap many times per second for little garbage. An idle process keeps Go's pace, and its small size.
package gctuner

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// interval is the time between collections at the present rate of allocation, if its garbage is within the bounds.
	interval = 2 * time.Second
	// least and most are bounds of the garbage, in bytes. In between, the garbage may be as large as the live memory.
	least, most = 384 << 20, 1 << 30
	// pace is Go's default: as much garbage as live memory.
	pace = 100
)

// Tune starts to adapt the garbage collector of the process, unless the environment sets GOGC.
func Tune() {
	if os.Getenv("GOGC") != "" {
		return
	}
	t := &tuner{samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}, at: time.Now()}
	t.arm()
}

type tuner struct {
	samples   []metrics.Sample
	at        time.Time // of the last collection
	allocated uint64    // by then, in bytes
	percent   int
}

// arm makes the runtime call collected after the next collection.
func (t *tuner) arm() {
	runtime.SetFinalizer(&struct{ _ [16]byte }{}, func(any) { t.collected() })
}

func (t *tuner) collected() {
	defer t.arm()
	metrics.Read(t.samples)
	live, allocated := t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64()
	now := time.Now()
	if p := percent(live, allocated-t.allocated, now.Sub(t.at)); p != t.percent {
		t.percent = p
		debug.SetGCPercent(p)
	}
	t.at, t.allocated = now, allocated
}

// percent returns the garbage to allow, in percent of the live memory, after a number of bytes were allocated in a time.
func percent(live, allocated uint64, in time.Duration) int {
	if live == 0 || in <= 0 {
		return pace
	}
	wanted := uint64(float64(allocated) * float64(interval) / float64(in))
	bound := min(max(live, least), most)
	own := live * pace / 100
	return int(max(min(wanted, bound), min(own, bound)) * 100 / live)
}
