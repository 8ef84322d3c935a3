package gctuner

import (
	"testing"
	"time"
)

func TestAnIdleHeapKeepsGoPaceAndABusyOneIsBounded(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what            string
		live, allocated uint64
		in              time.Duration
		want            int
	}{
		{"no samples", 0, 0, 0, 100},
		{"idle", 100 * mib, 100 * mib, 2 * time.Minute, 100},
		{"moderate: the allocations of two seconds", 100 * mib, 100 * mib, time.Second, 200},
		{"busy: bounded", 100 * mib, 100 * mib, 100 * time.Millisecond, 384},
		{"busy and large: as much garbage as live memory", 512 * mib, 1024 * mib, 100 * time.Millisecond, 100},
		{"very large: less garbage than live memory", 4096 * mib, 1024 * mib, time.Second, 25},
		{"very large and idle", 4096 * mib, 1024 * mib, time.Hour, 25},
	} {
		if got := percent(c.live, c.allocated, c.in); got != c.want {
			t.Errorf("%s: %d %%, want %d", c.what, got, c.want)
		}
	}
}
