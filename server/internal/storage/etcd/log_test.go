package etcd

import (
	"crypto/rand"
	"path/filepath"
	"runtime"
	"testing"
)

// heapInUse returns the bytes of live objects.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // objects with a finalizer are freed in the second collection
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestTheLogInMemoryIsLimitedInSize(t *testing.T) {
	server, err := Start(t.Context(), Config{Directory: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()

	value := make([]byte, 1<<20)
	_, _ = rand.Read(value)
	before := heapInUse()
	const writes, limit = 120, 4 * logBytes
	for range writes {
		if _, err := client.Put(t.Context(), "/object", string(value)); err != nil {
			t.Fatal(err)
		}
	}
	grown := heapInUse() - before
	t.Logf("the heap grew by %d MiB with %d writes of 1 MiB", grown>>20, writes)
	if grown > limit {
		t.Errorf("the heap grew by %d MiB; want %d MiB at the most", grown>>20, limit>>20)
	}
}
