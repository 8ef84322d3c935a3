package processors

import (
	"runtime"
	"testing"
)

func TestWaitForDisk(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(before)
		counted.Store(0)
	})
	t.Run("GOMAXPROCS is set", func(t *testing.T) {
		t.Setenv("GOMAXPROCS", "1")
		WaitForDisk(2)
		if got := runtime.GOMAXPROCS(0); got != before || Count() != before {
			t.Errorf("the runtime has %d threads and Count() is %d, want %d", got, Count(), before)
		}
	})
	t.Setenv("GOMAXPROCS", "")
	for range 2 {
		WaitForDisk(2)
		if got := runtime.GOMAXPROCS(0); got != before+2 {
			t.Errorf("the runtime has %d threads, want %d", got, before+2)
		}
		if Count() != before {
			t.Errorf("Count() = %d, want %d", Count(), before)
		}
	}
}
