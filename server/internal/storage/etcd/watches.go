package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// localWatches are watches without a connection: the responses of the server are not encoded, sent and decoded. WatchClient passes on
// messages between a client and a server of one process.
//
// Invariants:
//   - Sending a request never waits. A client that waited would not receive the responses that the server has to send before it reads the
//     next request: both would wait for each other when many watches end at the same time. Requests are few, one for each watch that begins
//     or ends, so that those of a stream wait in a list without a limit.
//   - The server waits until a response is received, and then keeps later events as it does for a slow connection.
//   - Both sides, and all watches of a key, share the keys and values of events, and must not change them.
type localWatches struct {
	pb.WatchClient
	stopped context.Context // done when the streams must end
}

// Watch implements pb.WatchClient.
func (w localWatches) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := w.WatchClient.Watch(ctx, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &localStream{Watch_WatchClient: stream, added: make(chan struct{}, 1)}
	keep := context.AfterFunc(w.stopped, cancel)
	go func() {
		defer cancel()
		defer keep()
		s.forward()
	}()
	return s, nil
}

// localStream is the client's end of a stream. The client never closes its direction: the context ends the stream.
type localStream struct {
	pb.Watch_WatchClient
	added chan struct{} // holds a value after requests has changed

	mu       sync.Mutex
	requests []*pb.WatchRequest
}

// Send implements pb.Watch_WatchClient.
func (s *localStream) Send(request *pb.WatchRequest) error {
	if err := s.Context().Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	select {
	case s.added <- struct{}{}:
	default:
	}
	return nil
}

// forward sends the requests to the server until the stream ends.
func (s *localStream) forward() {
	for {
		select {
		case <-s.added:
		case <-s.Context().Done():
			return
		}
		s.mu.Lock()
		requests := s.requests
		s.requests = nil
		s.mu.Unlock()
		for _, request := range requests {
			if s.Watch_WatchClient.Send(request) != nil {
				return
			}
		}
	}
}

// watchHandlers are the calls of a server by its local clients, which its shutdown does not know: they read the store that it closes.
type watchHandlers struct {
	stopped context.Context // done when the streams must end
	cancel  context.CancelFunc

	mu      sync.Mutex // orders the end of stopped and additions to running
	running sync.WaitGroup
}

func newWatchHandlers() *watchHandlers {
	h := &watchHandlers{}
	h.stopped, h.cancel = context.WithCancel(context.Background())
	return h
}

// begin reports whether a call may begin. If so, the caller calls running.Done when it ends.
func (h *watchHandlers) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped.Err() != nil {
		return false
	}
	h.running.Add(1)
	return true
}

// stop ends all calls, and waits for at most a time until they have ended.
func (h *watchHandlers) stop(timeout time.Duration) {
	h.mu.Lock()
	h.cancel()
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(timeout):
	}
}

// awaitedWatches counts the calls of a server.
type awaitedWatches struct {
	pb.WatchServer
	handlers *watchHandlers
}

// Watch implements pb.WatchServer.
func (w awaitedWatches) Watch(stream pb.Watch_WatchServer) error {
	if !w.handlers.begin() {
		return context.Canceled
	}
	defer w.handlers.running.Done()
	return w.WatchServer.Watch(stream)
}
