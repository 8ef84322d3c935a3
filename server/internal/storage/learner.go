package storage

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// A learner is a member that does not vote yet, because it still copies the data. It refuses calls. Clients reach it nevertheless: behind
// a Service, a member counts as ready until it has read that it is a learner.

// learnerTries limits how often a call goes to another connection because it has reached a learner.
const learnerTries = 20

// errLearner makes the client of etcd repeat a call or reopen a stream.
var errLearner = status.Error(codes.Unavailable, "the etcd member is a learner, and does not serve requests yet")

func refusedByLearner(err error) bool {
	return err != nil && errors.Is(rpctypes.Error(err), rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
}

// ofVoter repeats a call over other connections while it reaches a learner, which has not executed it.
func (c *contact) ofVoter(ctx context.Context, waiting *sent, invoke func(context.Context) error) error {
	ctx = context.WithValue(ctx, sentKey{}, waiting)
	for range learnerTries {
		err := invoke(ctx)
		if !refusedByLearner(err) {
			return err
		}
		c.leave(waiting)
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return errLearner
		}
	}
	return errLearner
}

// leave closes the connection of a call to a learner.
func (c *contact) leave(waiting *sent) {
	c.mu.Lock()
	found := c.line(waiting.over.Load())
	if found != nil {
		c.avoid(found)
	}
	c.mu.Unlock()
	if found == nil { // another call has closed it
		return
	}
	klog.Background().Info("An etcd member is a learner, reconnecting", decisionlog.Member, found.RemoteAddr())
	_ = found.Close()
}

// stream is the interceptor of streams.
func (c *contact) stream(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	waiting := &sent{contact: c}
	opened, err := open(context.WithValue(ctx, sentKey{}, waiting), description, connection, method, options...)
	if err != nil {
		return nil, err
	}
	return &voterStream{opened, waiting}, nil
}

// voterStream is a stream that reports a learner like a lost connection, after which a watch continues with another member.
type voterStream struct {
	grpc.ClientStream
	waiting *sent
}

func (s *voterStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if refusedByLearner(err) {
		s.waiting.contact.leave(s.waiting)
		return errLearner
	}
	return err
}
