package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limits of the memory of events that watches have not read, in bytes: for one watch, for one account, and in total. An account is a
// logical cluster, or a user who watches all clusters. If the total exceeds its limit, the watches of the tenant that holds the most end,
// in all of its clusters.
const (
	watchUnread, accountUnread, allUnread = 32 << 20, 64 << 20, 128 << 20
	// checkEvery is the number of bytes of events between two checks.
	checkEvery = 1 << 20
	// allRemembered limits the bytes that all streams keep for watches that join later.
	allRemembered = 32 << 20
)

// Consumer is the reader of a watch: a client on a connection.
type Consumer interface {
	// Pending returns how many bytes are being written to the client.
	Pending() int
	// GiveUp makes a write that waits for the client fail.
	GiveUp()
}

type consumerKey struct{}

// WithConsumer returns a context for watches of a consumer.
func WithConsumer(ctx context.Context, c Consumer) context.Context {
	return context.WithValue(ctx, consumerKey{}, c)
}

// budget limits the memory of events that watches have not read. It considers only streams with new or unread events.
type budget struct {
	watch, account, all int64
	ended               *metrics.CounterVec
	remembered          atomic.Int64 // of all streams
	grown               atomic.Int64 // since the last check
	sizers              sizers

	mu       sync.Mutex
	noted    map[*stream]struct{}
	checking sync.Mutex
}

func newBudget(watch, account, all int64) *budget {
	return &budget{watch: watch, account: account, all: all, noted: map[*stream]struct{}{}, ended: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kcp_watches_ended_total", Help: "Watches that were ended because their clients did not read, by the limit that was exceeded: " +
			"undecoded, events, watch, cluster or process.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"limit"})}
}

// accountOf returns the account of a watch. Watches of the server itself, and of administrators of the shard, have none.
func accountOf(ctx context.Context) string {
	who, ok := request.UserFrom(ctx)
	if !ok || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return ""
	}
	cluster, _ := logicalcluster.From(ctx)
	if cluster.Wildcard || cluster.Name == logicalcluster.Root {
		if from := who.GetExtra()[logicalcluster.UserExtraKey]; len(from) == 1 {
			return "cluster " + from[0] // the cluster chooses the names of its users
		}
		return "user " + who.GetName()
	}
	return "cluster " + string(cluster.Name)
}

// grew records that a stream has more bytes. The stream must not be locked.
func (b *budget) grew(st *stream, size int64) {
	if !st.noted.Swap(true) {
		b.mu.Lock()
		b.noted[st] = struct{}{}
		b.mu.Unlock()
	}
	if b.grown.Add(size) >= checkEvery {
		b.check()
	}
}

// forget drops a stream that has ended.
func (b *budget) forget(st *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.noted, st)
}

// usage is the memory that the members of a stream hold; the member that holds the most is last.
type usage struct {
	members []holding
	written int64 // bytes that are being written to all of them
}

type holding struct {
	*member
	bytes, events int64
	out           int64 // bytes that are being written to it
}

func (u *usage) last() holding { return u.members[len(u.members)-1] }

// total returns the bytes that a stream holds: the unread events of a member include those of the members ahead of
// it.
func (u *usage) total() int64 { return u.last().bytes + u.written }

// check ends the watches that exceed the limits.
func (b *budget) check() {
	if !b.checking.TryLock() {
		return
	}
	defer b.checking.Unlock()
	b.grown.Store(0)
	var used []*usage
	b.mu.Lock()
	streams := slices.Collect(maps.Keys(b.noted))
	for _, st := range streams {
		st.noted.Store(false)
	}
	clear(b.noted)
	b.mu.Unlock()
	for _, st := range streams {
		u := st.usage()
		if len(u.members) == 0 || u.total() == 0 {
			continue
		}
		if !st.noted.Swap(true) {
			b.mu.Lock()
			b.noted[st] = struct{}{}
			b.mu.Unlock()
		}
		if b.endFarBehind(u); len(u.members) > 0 {
			used = append(used, u)
		}
	}
	b.endLargest(used)
}

// endFarBehind ends the members of a stream that exceed the limit of a single watch.
func (b *budget) endFarBehind(u *usage) {
	u.members = slices.DeleteFunc(u.members, func(h holding) bool {
		limit := b.watch
		if h.account == "" {
			limit = b.all
		}
		switch {
		case h.events > behind:
			b.end(u, h, "events")
		case h.bytes > limit:
			b.end(u, h, "watch")
		default:
			return false
		}
		return true
	})
}

// endLargest ends the members that hold the most until each account and the total are within their limits.
func (b *budget) endLargest(used []*usage) {
	var all int64
	accounts := map[string]*holdings{}
	for _, u := range used {
		all += u.total()
		name := u.last().account
		if accounts[name] == nil {
			accounts[name] = &holdings{}
		}
		accounts[name].add(u)
	}
	delete(accounts, "")
	for _, a := range accounts {
		for a.bytes > b.account {
			all -= a.endLargest(b, "cluster")
		}
	}
	if all <= b.all {
		return
	}
	tenants := map[string]*holdings{}
	for _, a := range accounts {
		for _, u := range a.streams {
			name := u.last().tenant
			if tenants[name] == nil {
				tenants[name] = &holdings{}
			}
			tenants[name].add(u)
		}
	}
	most := func(a, b *holdings) int { return cmp.Compare(a.bytes, b.bytes) }
	for all > b.all {
		a := slices.MaxFunc(append(slices.Collect(maps.Values(tenants)), &holdings{}), most)
		if a.bytes == 0 {
			return
		}
		all -= a.endLargest(b, "process")
	}
}

// holdings are the streams of an account, or of a tenant.
type holdings struct {
	streams []*usage
	bytes   int64
}

func (a *holdings) add(u *usage) {
	a.streams = append(a.streams, u)
	a.bytes += u.total()
}

// endLargest ends the member that holds the most, and returns the freed bytes.
func (a *holdings) endLargest(b *budget, limit string) (freed int64) {
	i := 0
	for j, u := range a.streams {
		if u.total() > a.streams[i].total() {
			i = j
		}
	}
	u := a.streams[i]
	freed = u.total()
	b.end(u, u.last(), limit)
	if u.members = u.members[:len(u.members)-1]; len(u.members) > 0 {
		freed -= u.total()
	} else {
		a.streams = slices.Delete(a.streams, i, i+1)
	}
	a.bytes -= freed
	return freed
}

func (b *budget) end(u *usage, h holding, limit string) {
	u.written -= h.out
	h.ended.Store(true)
	h.stop()
	if h.consumer != nil {
		h.consumer.GiveUp()
	}
	b.ended.WithLabelValues(limit).Inc()
}

// Register registers kcp_watches_ended_total.
func (b *Backend) Register(register func(metrics.Registerable) error) error {
	if err := register(b.streams.budget.ended); err != nil {
		return fmt.Errorf("metric of ended watches: %w", err)
	}
	return nil
}
