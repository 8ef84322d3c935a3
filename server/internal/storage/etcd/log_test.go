package etcd

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
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

func TestFewFilesOfTheLogAreKept(t *testing.T) {
	config := Config{Directory: t.TempDir(), WALSizeBytes: 16 << 20}
	files := func(in, suffix string) []string {
		found, err := filepath.Glob(filepath.Join(config.Directory, "data", "member", in, "*"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	start := func() *Server {
		server, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	value := make([]byte, 1<<20)
	_, _ = rand.Read(value)
	server := start()
	client := server.Client()
	for range 6 * 16 {
		if _, err := client.Put(t.Context(), "/object", string(value)); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.Close()
	server.Stop()
	if n := len(files("wal", ".wal")); n < 5 {
		t.Fatalf("only %d files were written", n)
	}

	server = start() // a start removes those that are too many
	for deadline := time.Now().Add(time.Minute); len(files("wal", ".wal")) > logFiles; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files are kept, want %d", len(files("wal", ".wal")), logFiles)
		}
	}
	server.Stop()
	if err := os.Truncate(slices.Max(files("snap", ".snap")), 10); err != nil {
		t.Fatal(err)
	}
	server = start()
	defer server.Stop()
	client = server.Client()
	defer client.Close()
	found, err := client.Get(t.Context(), "/object")
	if err != nil || len(found.Kvs) != 1 || found.Kvs[0].Version != 6*16 {
		t.Errorf("after the last snapshot was damaged: got %v, error %v", found, err)
	}
}
