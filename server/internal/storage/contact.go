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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// silentLimit is how long a member of etcd may send nothing while a call waits for it. Its connection is then closed, and
	// the call is repeated over another connection, to another member if there is one.
	silentLimit = 500 * time.Millisecond
	// stuckLimit is the same for a member that responds to probes but not to the call, because it cannot write to its disk, or
	// cannot reach the other members. It is longer than an election.
	stuckLimit = 3 * silentLimit
	// limitMax is the limit after connections were closed repeatedly, so that an etcd that is only slow keeps its
	// connections.
	limitMax = 12 * time.Second
	// probeAfter is how long a call waits before the member is probed, and probeInterval the time between probes
	// after that.
	probeAfter, probeInterval = 200 * time.Millisecond, 100 * time.Millisecond
	// closedMemory is how long a closed connection raises the limit for the next.
	closedMemory = time.Minute
	// avoided is how long other members are preferred to a member whose connection was closed.
	avoided = 2 * time.Second
	// lookupTimeout is how long a new connection to a known member waits for DNS.
	lookupTimeout = connectTimeout / 3
	// rangeFactor raises the limits for calls that read more than one key.
	rangeFactor = 4
)

// ErrReverted means that etcd has lost revisions that it had before.
var ErrReverted = errors.New("etcd was restored or replaced while this server was running")

// contact detects when a member of etcd stops responding, and when the revision of etcd decreases.
type contact struct {
	reverted func(error) // is called once
	began    time.Time   // times of calls and connections are relative to it, so that setting the clock does not affect them
	once     sync.Once
	cluster  atomic.Uint64
	revision atomic.Int64  // the highest revision of all responses
	term     atomic.Uint64 // of the last known leader
	probed   atomic.Int64  // time of the last probe of a member, by now

	members int

	mu         sync.Mutex
	lines      map[*line]struct{}
	closed     int
	lastClosed time.Time
	silent     []string // recently closed addresses, also those of learners: at most all members except one

	resolver *net.Resolver     // nil: the default
	reached  map[string]string // IP addresses of the last connections to each address that was dialled
}

// newContact returns a contact to a number of members. reverted is called when the revision of etcd decreases.
func newContact(members int, reverted func(error)) *contact {
	return &contact{members: members, reverted: reverted, began: time.Now(), lines: map[*line]struct{}{}, reached: map[string]string{}}
}

// now returns the time since the start of the contact, in nanoseconds of the monotonic clock.
func (c *contact) now() int64 { return int64(time.Since(c.began)) }

// dialOptions returns the options that make a client use c.
func (c *contact) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(c.dial), grpc.WithChainUnaryInterceptor(c.call),
		grpc.WithChainStreamInterceptor(c.stream), grpc.WithStatsHandler(callAddress{})}
}

var (
	errSilent        = errors.New("the etcd member stopped responding")
	errLeaderChanged = status.Error(codes.Unavailable, "the leader of etcd changed before it responded")
)

// line is a connection to a member.
type line struct {
	net.Conn
	address string // that was dialled
	contact *contact
	heard   atomic.Int64 // time of the last read, by now of the contact
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
	connection, err := c.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: connection, address: dialled, contact: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[l] = struct{}{}
	c.reached[address] = connection.RemoteAddr().String()
	return l, nil
}

// connect dials an address. If the name or the connection takes long, it dials the IP address of the last connection there, since each
// attempt has only connectTimeout, and the next would wait again. TLS verifies the name, and note compares the cluster ID.
func (c *contact) connect(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Resolver: c.resolver}
	c.mu.Lock()
	last, known := c.reached[address]
	c.mu.Unlock()
	if !known || last == address {
		return dialer.DialContext(ctx, network, address)
	}
	named, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	connection, err := dialer.DialContext(named, network, address)
	if err != nil && named.Err() != nil && ctx.Err() == nil {
		return dialer.DialContext(ctx, network, last)
	}
	return connection, err
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

// sent is a call that waits for its response.
type sent struct {
	contact  *contact
	over     atomic.Pointer[string] // the local address of its connection
	at       atomic.Int64           // time when it was sent there, by now of the contact
	answered atomic.Bool            // the response has begun to arrive

	factor  time.Duration           // of stuckLimit
	term    uint64                  // when it was sent
	lose    context.CancelCauseFunc // of a write
	changed bool                    // another term was seen at the last check
}

type sentKey struct{}

// callAddress records the connection of a call, and when its response begins.
type callAddress struct{}

func (callAddress) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (callAddress) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (callAddress) HandleConn(context.Context, stats.ConnStats)                       {}

func (callAddress) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch header := s.(type) {
	case *stats.OutHeader:
		if call, ok := ctx.Value(sentKey{}).(*sent); ok && header.LocalAddr != nil {
			address := header.LocalAddr.String()
			call.at.Store(call.contact.now())
			call.over.Store(&address)
		}
	case *stats.InHeader:
		if call, ok := ctx.Value(sentKey{}).(*sent); ok {
			call.answered.Store(true)
		}
	}
}

// call is the interceptor of each attempt of a call.
func (c *contact) call(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption) error {
	waiting := &sent{contact: c, factor: 1, term: c.term.Load()}
	switch r := request.(type) {
	case *pb.RangeRequest:
		if len(r.RangeEnd) > 0 {
			waiting.factor = rangeFactor
		}
	case *pb.TxnRequest:
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		waiting.lose = cancel
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
		c.probe(connection, invoke)
		c.check(waiting)
		time.AfterFunc(probeInterval, check)
	}
	timer := time.AfterFunc(probeAfter, check)
	defer timer.Stop()
	err := c.ofVoter(ctx, waiting, func(ctx context.Context) error { return invoke(ctx, method, request, reply, connection, options...) })
	if err == nil {
		c.note(request, reply, known)
	} else if errors.Is(context.Cause(ctx), errLeaderChanged) {
		return errLeaderChanged
	}
	return err
}

// probe makes a member send a response if its process runs, and gets the term of its leader. All waiting calls share one probe.
func (c *contact) probe(connection *grpc.ClientConn, invoke grpc.UnaryInvoker) {
	last, now := c.probed.Load(), c.now()
	if time.Duration(now-last) < probeInterval || !c.probed.CompareAndSwap(last, now) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), silentLimit)
		defer cancel()
		reply := &pb.StatusResponse{}
		if err := invoke(ctx, pb.Maintenance_Status_FullMethodName, &pb.StatusRequest{}, reply, connection); err == nil && reply.Leader != 0 {
			raise(&c.term, reply.RaftTerm)
		}
	}()
}

// raise increases a number to at least another one.
func raise[N ~int64 | ~uint64](number interface {
	Load() N
	CompareAndSwap(before, after N) bool
}, to N) {
	for {
		seen := number.Load()
		if to <= seen || number.CompareAndSwap(seen, to) {
			return
		}
	}
}

// check closes the connection of a waiting call if no data, or no response to the call, has arrived for too long. A write ends if
// the leader has changed since it was sent: a follower forwards it once, so that it may be lost with the former leader.
func (c *contact) check(waiting *sent) {
	if waiting.lose != nil {
		switch term := c.term.Load(); {
		case waiting.term == 0:
			waiting.term = term
		case term > waiting.term && waiting.changed: // a response may be in transit at the first check
			waiting.lose(errLeaderChanged)
			return
		default:
			waiting.changed = term > waiting.term
		}
	}
	c.mu.Lock()
	found := c.line(waiting.over.Load())
	if found == nil { // the call waits for a connection
		c.mu.Unlock()
		return
	}
	now, at := c.now(), waiting.at.Load()
	silent, waits := time.Duration(now-max(found.heard.Load(), at)), time.Duration(now-at)
	stuck := !waiting.answered.Load() && waits >= c.limit(stuckLimit*waiting.factor)
	if silent < c.limit(silentLimit*waiting.factor) && !stuck { // a probe may have gone over another connection
		c.mu.Unlock()
		return
	}
	c.closed++
	c.avoid(found) // other calls wait for it as well: it is closed once
	c.mu.Unlock()
	klog.Background().Info("An etcd member does not respond, reconnecting", decisionlog.Member, found.RemoteAddr(),
		decisionlog.Silent, silent, decisionlog.Waiting, waits)
	_ = found.Close()
}

// avoid forgets a connection, so that it is closed only once, and prefers other members for a while. The caller holds the lock.
func (c *contact) avoid(l *line) {
	delete(c.lines, l)
	c.lastClosed = time.Now()
	c.silent = append(slices.DeleteFunc(c.silent, func(a string) bool { return a == l.address }), l.address)
	c.silent = c.silent[max(0, len(c.silent)-(c.members-1)):]
}

// line returns the connection with a local address, or nil. The caller holds the lock.
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

// limit returns the current value of a limit. Three connections are closed early: that of a stopped member, and those of others
// that wait for it. The caller holds the lock.
func (c *contact) limit(first time.Duration) time.Duration {
	if time.Since(c.lastClosed) > closedMemory {
		c.closed = 0
	}
	return min(max(limitMax, first), first<<min(8, max(0, c.closed-2)))
}

// note compares the header of a response with the known state when its request was sent.
func (c *contact) note(request, reply any, known int64) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		if r.Serializable {
			return // a member may respond with its previous state
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
	if before := c.cluster.Load(); before != header.ClusterId && !c.cluster.CompareAndSwap(0, header.ClusterId) &&
		c.cluster.Load() != header.ClusterId {
		c.report(fmt.Errorf("%w: the cluster ID is %x, was %x", ErrReverted, header.ClusterId, before))
		return
	}
	if header.Revision < known {
		c.report(fmt.Errorf("%w: the revision is %d, was %d", ErrReverted, header.Revision, known))
		return
	}
	raise(&c.revision, header.Revision)
	raise(&c.term, header.RaftTerm)
}

func (c *contact) report(err error) { c.once.Do(func() { c.reverted(err) }) }
