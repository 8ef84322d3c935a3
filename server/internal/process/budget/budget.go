// Package budget limits how often each of many keys, such as the networks of clients, causes work.
package budget

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Budgets have one budget for each key. The memory is bounded: a budget that is dropped starts full again.
type Budgets struct {
	limit rate.Limit
	burst int
	clock clock.PassiveClock

	mu   sync.Mutex
	keys *lru.Cache // *rate.Limiter
}

// New returns budgets for at most this number of keys at a time: each may cause limit events a second, and burst at once.
func New(limit rate.Limit, burst, keys int, clock clock.PassiveClock) *Budgets {
	return &Budgets{limit: limit, burst: burst, clock: clock, keys: lru.New(keys)}
}

// Allow reports whether a key may cause an event now, and counts it.
func (b *Budgets) Allow(key any) bool { return b.AllowN(key, 1) }

// AllowN reports whether a key may cause n events now, and counts them. More than can be caused at once count as that many.
func (b *Budgets) AllowN(key any, n int) bool {
	return b.of(key).AllowN(b.clock.Now(), min(n, b.burst))
}

func (b *Budgets) of(key any) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.keys.Get(key); ok {
		return found.(*rate.Limiter)
	}
	created := rate.NewLimiter(b.limit, b.burst)
	b.keys.Add(key, created)
	return created
}

// Network returns the network of a host, whose address can have a port: an IPv4 address or, because one host can have all addresses of it,
// the IPv6 /64 network. It is invalid if the address is.
func Network(address string) netip.Prefix {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	parsed = parsed.Unmap().WithZone("")
	bits := parsed.BitLen()
	if parsed.Is6() {
		bits = 64
	}
	network, err := parsed.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
