package leaderelection

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// gate forwards the calls of a server to etcd. It can hold back the events of watches.
type gate struct {
	etcd *grpc.ClientConn

	mu     sync.Mutex
	opened chan struct{} // closed while events pass
	key    []byte        // a read of a key that contains it opens the gate
	read   bool          // this read has opened the gate
}

// newGate returns a gate in front of the etcd at an address, and the address of the gate.
func newGate(t *testing.T, address string) (*gate, string) {
	t.Helper()
	etcd, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{etcd: etcd, opened: make(chan struct{})}
	close(g.opened)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(asItIs{}), grpc.UnknownServiceHandler(g.pass))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		_ = etcd.Close()
	})
	return g, listener.Addr().String()
}

// shut makes the gate hold back events.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened, g.key, g.read = make(chan struct{}), nil, false
}

// openAtReadOf lets events pass after a read of a key that contains text.
func (g *gate) openAtReadOf(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.key = []byte(text)
}

// wasRead reports whether the key was read since shut.
func (g *gate) wasRead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.read
}

func (g *gate) note(request []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != nil && !g.read && bytes.Contains(request, g.key) {
		g.read = true
		close(g.opened)
	}
}

func (g *gate) await(ctx context.Context) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// pass is a grpc.StreamHandler for every method.
func (g *gate) pass(_ any, from grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	method, _ := grpc.Method(ctx)
	with, _ := metadata.FromIncomingContext(ctx)
	to, err := g.etcd.NewStream(metadata.NewOutgoingContext(ctx, with), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(asItIs{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var request []byte
			if from.RecvMsg(&request) != nil {
				_ = to.CloseSend()
				return
			}
			if method == "/etcdserverpb.KV/Range" {
				g.note(request)
			}
			if to.SendMsg(&request) != nil {
				return
			}
		}
	}()
	for {
		var response []byte
		if err := to.RecvMsg(&response); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err // contains the status of the call
		}
		if method == "/etcdserverpb.Watch/Watch" {
			g.await(ctx)
		}
		if err := from.SendMsg(&response); err != nil {
			return err
		}
	}
}

// asItIs is an encoding.CodecV2 for messages that are bytes.
type asItIs struct{}

func (asItIs) Name() string { return "proto" }

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
