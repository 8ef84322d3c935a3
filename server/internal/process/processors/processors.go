// Package processors tells how many processors the process may use, and keeps them busy while some of its threads wait for the disk.
package processors

import (
	"os"
	"runtime"
	"sync/atomic"
)

// counted is the number of processors, if the runtime runs more threads than that; otherwise 0.
var counted atomic.Int64

// Count returns the number of processors that the process may use, which follows from its environment.
func Count() int {
	if n := counted.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// WaitForDisk makes the runtime run this many threads more than there are processors, unless the environment sets GOMAXPROCS. A thread
// that waits for the disk in a system call counts as running until the runtime notices, up to some milliseconds later, and a processor has
// no work for so long. Only the first call has an effect. With it, the runtime no longer follows changes of the processors that the process
// may use.
func WaitForDisk(threads int) {
	if os.Getenv("GOMAXPROCS") == "" && counted.CompareAndSwap(0, int64(runtime.GOMAXPROCS(0))) {
		runtime.GOMAXPROCS(Count() + threads)
	}
}
