package etcdmember

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func status(address, path string) int {
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestAMemberWithoutDataWaitsUntilItIsTold(t *testing.T) {
	file, address := filepath.Join(t.TempDir(), "start"), freeAddress(t)
	type told struct {
		start Start
		err   error
	}
	done := make(chan told, 1)
	go func() {
		start, err := Await(t.Context(), file, address, time.Millisecond)
		done <- told{start, err}
	}()
	for status(address, WaitingPath) != http.StatusOK {
		select {
		case got := <-done:
			t.Fatalf("it went on by itself: %+v", got)
		case <-time.After(time.Millisecond):
		}
	}
	if alive, ready := status(address, "/livez"), status(address, "/readyz"); alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("it is alive with %d, and ready with %d", alive, ready)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil { // as the kubelet does when there is no annotation
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), "start")
	text := `{"state":"existing","cluster":"a-0=https://a-0:2380,a-1=https://a-1:2380","token":"t","memberID":"2a"}`
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(written, file); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	want := []string{"--initial-cluster-state=existing", "--initial-cluster=a-0=https://a-0:2380,a-1=https://a-1:2380", "--initial-cluster-token=t"}
	if diff := cmp.Diff(want, got.start.Arguments()); diff != "" {
		t.Error(diff)
	}
	if listener, err := net.Listen("tcp", address); err != nil {
		t.Errorf("the address is still taken: %v", err)
	} else {
		listener.Close()
	}
}

func TestAMemberThatIsStoppedWaitsNoMore(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Await(ctx, filepath.Join(t.TempDir(), "start"), freeAddress(t), time.Hour); err == nil {
		t.Error("no error")
	}
}

func TestWhatMakesNoSenseIsNotStarted(t *testing.T) {
	for _, text := range []string{``, `{`, `{}`, `{"state":"new"}`, `{"state":"other","cluster":"a=b","token":"t"}`, `{"state":"new","cluster":"a=b"}`} {
		if start, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, start)
		}
	}
}

func TestADirectoryIsEmptyWithoutALog(t *testing.T) {
	dir := t.TempDir()
	isEmpty := func(want bool, when string) {
		t.Helper()
		if got, err := Empty(dir); err != nil || got != want {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	isEmpty(true, "nothing is there")
	log := filepath.Join(dir, "member", "wal")
	if err := os.MkdirAll(log, 0o700); err != nil {
		t.Fatal(err)
	}
	isEmpty(true, "it was never begun") // etcd makes the directory before the log, and would start a new cluster
	if err := os.WriteFile(filepath.Join(log, "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	isEmpty(false, "there is a log")
}
