package etcd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after a minute", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func random(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	return string(text)
}

func TestAFullDatabaseFreesSpaceAfterDeletions(t *testing.T) {
	config := Config{Directory: filepath.Join(t.TempDir(), "etcd"), QuotaBackendBytes: 8 << 20}
	server, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	stop := func() { client.Close(); server.Stop() }
	defer func() { stop() }()
	large := random(512 << 10)
	// A test writes faster than space is freed, so etcd itself may reject a write, but not for long.
	put := func(key, value string) {
		t.Helper()
		eventually(t, key+" is written", func() bool {
			_, err := client.Put(t.Context(), key, value)
			return err == nil
		})
	}
	// History is not a reason to reject writes: compacting overwritten values frees space.
	for n := range 64 {
		eventually(t, fmt.Sprintf("there is room for version %d", n), func() bool { return server.Grow() == nil })
		put("/overwritten", large)
	}
	for n := range 18 {
		put(fmt.Sprintf("/key/%d", n), large)
	}
	eventually(t, "the database is full", func() bool { return server.Grow() != nil })
	if !strings.Contains(server.Grow().Error(), "of 8.0 MiB are used") || server.Write() != nil {
		t.Errorf("got %v, %v", server.Grow(), server.Write())
	}
	// The same for an earlier version of the server, which stopped with the alarm of etcd.
	if _, err := server.etcd.Server.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: uint64(server.etcd.Server.MemberID())}); err != nil {
		t.Fatal(err)
	}
	stop()
	if server, err = Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	client = server.Client()
	if server.Grow() == nil {
		t.Error("after a restart the full database is not detected")
	}
	put("/small", "what a deletion writes")
	if _, err := client.Delete(t.Context(), "/key/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room", func() bool { return server.Grow() == nil })
	eventually(t, "the file is small", func() bool { return server.etcd.Server.Backend().Size() < 8<<20 })
	put("/large", large)
}

func TestWritesAreRejectedWhenTheDiskIsNearlyFull(t *testing.T) {
	var left atomic.Int64
	left.Store(1 << 30)
	config := Config{Directory: filepath.Join(t.TempDir(), "etcd"), WALSizeBytes: 1 << 20, free: func(string) (int64, error) { return left.Load(), nil }}
	server, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if server.Grow() != nil || server.Write() != nil {
		t.Errorf("with room: %v, %v", server.Grow(), server.Write())
	}
	left.Store(3 << 20)
	eventually(t, "nothing may grow", func() bool { return server.Grow() != nil })
	if server.Write() != nil {
		t.Errorf("with 3 MiB: %v", server.Write())
	}
	left.Store(1 << 20)
	eventually(t, "nothing may be written", func() bool { return server.Write() != nil })
	server.Stop()
	if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), "1.0 MiB are free, 2.0 MiB are required for any write: free disk space and start again") {
		t.Errorf("a start on a full disk: %v", err)
	}
	left.Store(1 << 30)
	if server, err = Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := errors.Join(server.Grow(), server.Write()); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
