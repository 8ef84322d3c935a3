package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// unexpected fails a test if its etcd is reported as another one.
func unexpected(t *testing.T) func(error) {
	return func(err error) { t.Errorf("etcd is the same, and was found to be another: %v", err) }
}

// freePort returns a port that no listener has, outside of those that the kernel chooses for connections.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func TestARevertedEtcdIsDetected(t *testing.T) {
	for name, older := range map[string]bool{"an older state of it": true, "another etcd": false} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			directory, copied := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "copy")
			start := func(directory string) *etcd.Server {
				server, err := etcd.Start(t.Context(), etcd.Config{Directory: directory, ClientPort: port})
				if err != nil {
					t.Fatal(err)
				}
				return server
			}
			server := start(directory)
			found := make(chan error, 10)
			client, err := Dial(t.Context(), storagebackend.TransportConfig{ServerList: []string{fmt.Sprintf("http://127.0.0.1:%d", port)}}, func(err error) { found <- err })
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			write := func(times int) {
				for range times {
					if _, err := client.Put(t.Context(), "/key", "value"); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(3)
			server.Stop()
			if older {
				if err := os.CopyFS(copied, os.DirFS(directory)); err != nil {
					t.Fatal(err)
				}
			}
			server = start(directory)
			write(3)
			server.Stop()
			select {
			case err := <-found:
				t.Fatalf("after an ordinary restart: %v", err)
			default:
			}
			server = start(copied)
			defer server.Stop()
			if !older { // its revision is higher, so the revision does not help
				direct := server.Client()
				for range 20 {
					if _, err := direct.Put(t.Context(), "/other", "value"); err != nil {
						t.Fatal(err)
					}
				}
				direct.Close()
			}
			if _, err := client.Get(t.Context(), "/key"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-found:
				if !errors.Is(err, ErrReverted) {
					t.Error(err)
				}
			default:
				t.Error("the change was not detected")
			}
		})
	}
}

// Under load, many calls wait for the stopped member. If each of them counted, the limit would reach its maximum immediately.
func TestAConnectionWithManyWaitingCallsIsClosedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := newContact(3, unexpected(t))
	c.began = c.began.Add(-time.Minute)
	connection, err := c.dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := connection.LocalAddr().String()
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			waiting := &sent{contact: c, factor: 1}
			waiting.over.Store(&address)
			c.check(waiting)
		})
	}
	calls.Wait()
	if c.closed != 1 {
		t.Errorf("one connection is closed, and counts as %d", c.closed)
	}
	if _, err := connection.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is open: %v", err)
	}
}

// A follower that has forwarded a write to a leader that no longer exists waits for its result, although it never
// arrives.
func TestAWriteLostByALeaderEndsWhenTheLeaderChanges(t *testing.T) {
	for name, test := range map[string]struct {
		request any
		leader  uint64
		want    error
	}{
		"a write":                          {&pb.TxnRequest{}, 2, errLeaderChanged},
		"a write while no leader is known": {&pb.TxnRequest{}, 0, context.DeadlineExceeded},
		"a read, which is repeated":        {&pb.RangeRequest{}, 2, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newContact(3, unexpected(t))
			c.term.Store(4)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := c.call(ctx, "", test.request, nil, nil, func(ctx context.Context, _ string, request, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if status, ok := reply.(*pb.StatusResponse); ok {
					status.Leader, status.RaftTerm = test.leader, 4
					if time.Since(began) > time.Second {
						status.RaftTerm = 5
					}
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			if errors.Is(test.want, errLeaderChanged) && time.Since(began) > time.Second+3*probeInterval {
				t.Errorf("%s: given up after %s", name, time.Since(began))
			}
		})
	}
}

// relay forwards each connection to the next of some addresses, and all others to the last one, until it is silenced: then they stay open,
// but no data passes.
type relay struct {
	net.Listener
	silent atomic.Bool
	over   atomic.Int64
}

func newRelay(t *testing.T, to ...string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to[0])
			to = to[min(1, len(to)-1):]
			if err != nil {
				from.Close()
				continue
			}
			var ends sync.WaitGroup
			pass := func(to, from net.Conn) {
				buffer := make([]byte, 32<<10)
				for {
					n, err := from.Read(buffer)
					if err != nil {
						to.Close()
						return
					}
					for r.silent.Load() {
						time.Sleep(time.Millisecond)
					}
					if _, err := to.Write(buffer[:n]); err != nil {
						return
					}
					r.over.Add(int64(n))
				}
			}
			ends.Go(func() { pass(there, from) })
			ends.Go(func() { pass(from, there) })
		}
	}()
	return r
}

func TestASilentMemberIsReplacedByAnother(t *testing.T) {
	port := freePort(t)
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: filepath.Join(t.TempDir(), "etcd"), ClientPort: port})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	first, second := newRelay(t, address), newRelay(t, address)
	defer first.silent.Store(false)
	client, err := Dial(t.Context(), storagebackend.TransportConfig{ServerList: []string{"http://" + first.Addr().String(), "http://" + second.Addr().String()}}, unexpected(t))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	backend := NewBackend(client, "", 0)
	defer backend.Close()
	written, err := client.Put(t.Context(), "/key", "1")
	if err != nil {
		t.Fatal(err)
	}
	watch := client.Watch(t.Context(), "/key", clientv3.WithCreatedNotify(), clientv3.WithRev(written.Header.Revision+1))
	<-watch
	used, other := first, second
	if second.over.Load() > first.over.Load() {
		used, other = second, first
	}
	defer used.silent.Store(false)
	used.silent.Store(true)
	began := time.Now()
	if _, err := backend.client.Kubernetes.Get(t.Context(), "/key", etcdGet); err != nil {
		t.Errorf("reading: %v", err)
	}
	read := time.Since(began)
	if other.over.Load() == 0 {
		t.Error("it was not read from the other member")
	}
	put, err := backend.client.Kubernetes.OptimisticPut(t.Context(), "/other", []byte("2"), 0, etcdPut)
	if err != nil || !put.Succeeded {
		t.Errorf("writing: %+v, %v", put, err)
	}
	t.Logf("the first answers came after %s and %s", read, time.Since(began))
	if _, err := client.Put(t.Context(), "/key", "2"); err != nil {
		t.Fatal(err)
	}
	select {
	case told := <-watch:
		if n := len(told.Events); n == 0 || string(told.Events[n-1].Kv.Value) != "2" {
			t.Errorf("the watch delivers %+v", told)
		}
	case <-time.After(unheard):
		t.Error("the watch stays with the silent member")
	}
}
