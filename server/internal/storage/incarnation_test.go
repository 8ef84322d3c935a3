package storage

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// run runs do with a backend on the etcd of a directory.
func run(t *testing.T, config etcd.Config, do func(*Backend)) {
	t.Helper()
	server, err := etcd.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()
	b := NewBackend(client, "/registry", 0)
	defer b.Close()
	do(b)
}

func incarnationOf(t *testing.T, b *Backend) string {
	t.Helper()
	id, err := b.Incarnation(t.Context())
	if err != nil || id == "" {
		t.Fatalf("got %q, %v", id, err)
	}
	return id
}

func TestARestoredSnapshotIsAnotherIncarnation(t *testing.T) {
	port := freePort(t)
	original := etcd.Config{Directory: filepath.Join(t.TempDir(), "original"), PeerPort: port}
	restored := etcd.Config{Directory: filepath.Join(t.TempDir(), "restored"), PeerPort: port}
	saved := filepath.Join(t.TempDir(), "snapshot")

	var first string
	var cluster uint64
	run(t, original, func(b *Backend) {
		first = incarnationOf(t, b)
		for range 20 {
			if err := b.Advance(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if again := incarnationOf(t, b); again != first {
			t.Errorf("the incarnation changes from %s to %s", first, again)
		}
		taken, err := b.client.Client.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(taken)
		if err == nil {
			err = os.WriteFile(saved, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		status, err := b.status(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		cluster = status.Header.ClusterId
	})
	run(t, original, func(b *Backend) {
		if again := incarnationOf(t, b); again != first {
			t.Errorf("after a restart the incarnation is %s, was %s", again, first)
		}
	})

	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := etcdutl.NewV3(zap.NewNop()).Restore(etcdutl.RestoreConfig{
		SnapshotPath: saved, SkipHashCheck: true, Name: "default", OutputDataDir: filepath.Join(restored.Directory, "data"),
		PeerURLs: []string{url}, InitialCluster: "default=" + url, InitialClusterToken: "etcd-cluster",
	}); err != nil {
		t.Fatal(err)
	}
	run(t, restored, func(b *Backend) {
		status, err := b.status(t.Context(), 0)
		if err != nil || status.Header.ClusterId != cluster {
			t.Fatalf("the restored etcd has cluster ID %x, want %x: the test needs the same ID, %v", status.Header.ClusterId, cluster, err)
		}
		second := incarnationOf(t, b)
		if second == first {
			t.Errorf("a restored snapshot is still %s", first)
		}
		if again := incarnationOf(t, b); again != second {
			t.Errorf("the incarnation changes from %s to %s", second, again)
		}
	})
}

func TestAnIncarnationEndsWhenEtcdLosesEntriesOrIsReplaced(t *testing.T) {
	record := incarnation{ID: "a", Cluster: 7, Index: 9, revision: 5}
	for _, c := range []struct {
		what     string
		cluster  uint64
		index    uint64
		revision int64
		want     bool
	}{
		{"unchanged", 7, 9, 5, true},
		{"written since", 7, 109, 105, true},
		{"with entries that make no revision", 7, 200, 105, true},
		{"restored at once", 7, 3, 5, false},
		{"restored later", 7, 3, 105, false},
		{"restored with higher revisions", 7, 3, 1_000_000_105, false},
		{"restored and written since", 7, 500, 605, false},
		{"another etcd", 8, 109, 105, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := record.continues(c.cluster, c.index, c.revision); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestServersOfOneStoreAgreeOnItsIncarnation(t *testing.T) {
	b := *backend
	b.root = "/" + t.Name()
	found := make(chan string)
	const servers = 8
	for range servers {
		go func() {
			id, err := b.Incarnation(t.Context())
			if err != nil {
				id = err.Error()
			}
			found <- id
		}()
	}
	first := <-found
	for range servers - 1 {
		if other := <-found; other != first {
			t.Errorf("servers got %s and %s", first, other)
		}
	}
}
