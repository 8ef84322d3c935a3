package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"k8s.io/klog/v2"
)

const (
	// silentLimit is how long a member of etcd may send nothing while a call waits for it. Its connection is then closed, and
	// the call is made again over another one, to another member if there is one.
	silentLimit = 500 * time.Millisecond
	// silentLimitMax is the limit after connections were closed again and again: an etcd that is only slow keeps its connections.
	silentLimitMax = 12 * time.Second
	// closedMemory is how long a connection that was closed raises the limit for the next.
	closedMemory = time.Minute
	// avoided is how long others are preferred to a member whose connection was closed.
	avoided = 2 * time.Second
	// rangeFactor raises the limit for calls that read more than one key.
	rangeFactor = 4
)

// ErrReverted means that etcd has lost revisions that it had before.
var ErrReverted = errors.New("etcd was restored or replaced while this server was running")

// contact notices when a member of etcd goes silent, and when the revision of etcd goes back.
type contact struct {
	reverted func(error) // is called once
	began    time.Time   // times of calls and connections count from here, so that setting the clock of the machine changes none
	once     sync.Once
	cluster  atomic.Uint64
	revision atomic.Int64 // the highest of all responses

	members int

	mu         sync.Mutex
	lines      map[*line]struct{}
	closed     int
	lastClosed time.Time
	silent     []string // addresses that were closed last: all members but one at most
}

// newContact returns a contact to a number of members. reverted is called when the revision of etcd goes back.
func newContact(members int, reverted func(error)) *contact {
	return &contact{members: members, reverted: reverted, began: time.Now(), lines: map[*line]struct{}{}}
}

// now returns the time since the contact began, in nanoseconds of the monotonic clock.
func (c *contact) now() int64 { return int64(time.Since(c.began)) }

// dialOptions make a client use c.
func (c *contact) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(c.dial), grpc.WithChainUnaryInterceptor(c.call), grpc.WithStatsHandler(callAddress{})}
}

var errSilent = errors.New("the member of etcd has just stopped answering")

// line is a connection to a member.
type line struct {
	net.Conn
	address string // that was dialled
	contact *contact
	heard   atomic.Int64 // when something was read, by now of the contact
}

func (c *contact) dial(ctx context.Context, address string) (net.Conn, error) {
	c.mu.Lock()
	avoid := slices.Contains(c.silent, address) && time.Since(c.lastClosed) < avoided
	c.mu.Unlock()
	if avoid {
		return nil, errSilent
	}
	network, dialled := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", strings.TrimPrefix(path, "//")
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: connection, address: dialled, contact: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[l] = struct{}{}
	return l, nil
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(l.contact.now())
	}
	return n, err
}

func (l *line) Close() error {
	l.contact.mu.Lock()
	delete(l.contact.lines, l)
	l.contact.mu.Unlock()
	return l.Conn.Close()
}

// sent is a call that waits for its answer.
type sent struct {
	contact *contact
	over    atomic.Pointer[string] // the local address of its connection
	at      atomic.Int64           // when it was sent there, by now of the contact
}

type sentKey struct{}

// callAddress notes over which connection a call is sent.
type callAddress struct{}

func (callAddress) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (callAddress) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (callAddress) HandleConn(context.Context, stats.ConnStats)                       {}

func (callAddress) HandleRPC(ctx context.Context, s stats.RPCStats) {
	header, ok := s.(*stats.OutHeader)
	if !ok || header.LocalAddr == nil {
		return
	}
	if call, ok := ctx.Value(sentKey{}).(*sent); ok {
		address := header.LocalAddr.String()
		call.at.Store(call.contact.now())
		call.over.Store(&address)
	}
}

// call is the interceptor of every single try of a call.
func (c *contact) call(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	waiting, factor := &sent{contact: c}, time.Duration(1)
	if r, ok := request.(*pb.RangeRequest); ok && len(r.RangeEnd) > 0 {
		factor = rangeFactor
	}
	known := c.revision.Load()
	ended := make(chan struct{})
	defer close(ended)
	var check func()
	check = func() {
		select {
		case <-ended:
			return
		default:
		}
		if again := c.check(waiting, factor); again > 0 {
			time.AfterFunc(again, check)
		}
	}
	timer := time.AfterFunc(silentLimit*factor, check)
	defer timer.Stop()
	err := invoke(context.WithValue(ctx, sentKey{}, waiting), method, request, reply, connection, options...)
	if err == nil {
		c.note(request, reply, known)
	}
	return err
}

// check closes the connection of a call that waits if nothing was heard over it for too long, and returns when to look again.
func (c *contact) check(waiting *sent, factor time.Duration) time.Duration {
	c.mu.Lock()
	limit := c.limit() * factor
	found := c.line(waiting.over.Load())
	if found == nil { // the call waits for a connection
		c.mu.Unlock()
		return limit
	}
	silent := time.Duration(c.now() - max(found.heard.Load(), waiting.at.Load()))
	if silent < limit {
		c.mu.Unlock()
		return limit - silent
	}
	delete(c.lines, found) // other calls wait for it, too: it is closed once
	c.closed++
	c.lastClosed = time.Now()
	c.silent = append(slices.DeleteFunc(c.silent, func(a string) bool { return a == found.address }), found.address)
	c.silent = c.silent[max(0, len(c.silent)-(c.members-1)):]
	c.mu.Unlock()
	klog.Background().Info("A member of etcd does not answer, connecting again", "member", found.RemoteAddr(), "silent", silent)
	_ = found.Close()
	return limit
}

// line returns the connection with a local address, nil if there is none. The lock is held.
func (c *contact) line(address *string) *line {
	if address == nil {
		return nil
	}
	for l := range c.lines {
		if l.LocalAddr().String() == *address {
			return l
		}
	}
	return nil
}

// limit returns how long a member may be silent now. Three connections are closed soon: that of a member that has stopped, and those
// of others that wait for it. The lock is held.
func (c *contact) limit() time.Duration {
	if time.Since(c.lastClosed) > closedMemory {
		c.closed = 0
	}
	return min(silentLimitMax, silentLimit<<min(8, max(0, c.closed-2)))
}

// note compares the header of a response with what was known when its request was sent.
func (c *contact) note(request, reply any, known int64) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		if r.Serializable {
			return // a member may answer that from what it had
		}
	case *pb.TxnRequest, *pb.PutRequest, *pb.DeleteRangeRequest:
	default:
		return
	}
	with, ok := reply.(interface{ GetHeader() *pb.ResponseHeader })
	if !ok || with.GetHeader() == nil {
		return
	}
	header := with.GetHeader()
	if before := c.cluster.Load(); before != header.ClusterId && !c.cluster.CompareAndSwap(0, header.ClusterId) && c.cluster.Load() != header.ClusterId {
		c.report(fmt.Errorf("%w: it is the cluster %x, and was %x", ErrReverted, header.ClusterId, before))
		return
	}
	if header.Revision < known {
		c.report(fmt.Errorf("%w: it is at revision %d, and was at %d", ErrReverted, header.Revision, known))
		return
	}
	for {
		seen := c.revision.Load()
		if header.Revision <= seen || c.revision.CompareAndSwap(seen, header.Revision) {
			return
		}
	}
}

func (c *contact) report(err error) { c.once.Do(func() { c.reverted(err) }) }
