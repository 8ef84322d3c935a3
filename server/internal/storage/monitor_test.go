package storage

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// databaseSize calls the single monitor of a backend.
func databaseSize(t *testing.T, b *Backend) int64 {
	t.Helper()
	monitors, err := b.Monitors()
	if err != nil || len(monitors) != 1 {
		t.Fatalf("got %d monitors, %v, want one", len(monitors), err)
	}
	defer monitors[0].Close()
	measured, err := monitors[0].Monitor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return measured.Size
}

func TestTheSizeOfTheDatabaseIsKnown(t *testing.T) {
	if size := databaseSize(t, backend); size <= 0 {
		t.Errorf("the embedded database has %d bytes", size)
	}
	if err := backend.Ping(t.Context()); err != nil {
		t.Errorf("the client does not work after a monitor was closed: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: filepath.Join(t.TempDir(), "etcd"), ClientPort: port})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	dialled, err := Dial(t.Context(), storagebackend.TransportConfig{ServerList: []string{fmt.Sprintf("http://127.0.0.1:%d", port)}}, unexpected(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	external := NewBackend(dialled, "", 0)
	defer external.Close()
	if size := databaseSize(t, external); size <= 0 {
		t.Errorf("the external database has %d bytes", size)
	}
}
