package questions

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Client is who sends a request.
type Client struct {
	// Key identifies the client: its user name, or its network.
	Key string
	// Trust is what the proxy knows about the client.
	Trust Trust
}

// Trust is what the proxy knows about a client.
type Trust int

// Trust in clients.
const (
	// Anonymous clients have no credentials, and no permissions.
	Anonymous Trust = iota
	// Unverified clients have credentials that only a shard can verify. Anyone can invent them.
	Unverified
	// Verified clients are authenticated.
	Verified
)

// The questions that a client may cause in a second, and at once; and those of all unverified clients.
const (
	perVerified, verifiedBurst     = 50, 200
	perUnverified, unverifiedBurst = 10, 40
	perAll, allBurst               = 100, 400
	// maxBudgets is the number of budgets in memory. A budget that is dropped starts full again.
	maxBudgets = 16384
)

// budgets limit the questions of each client.
type budgets struct {
	clock clock.PassiveClock
	all   *rate.Limiter

	mu      sync.Mutex
	clients *lru.Cache // *rate.Limiter by Client
}

func newBudgets(c clock.PassiveClock) *budgets {
	return &budgets{clock: c, all: rate.NewLimiter(perAll, allBurst), clients: lru.New(maxBudgets)}
}

// allow reports whether a client may cause a number of questions.
func (b *budgets) allow(c Client, questions int) bool {
	limit, burst := rate.Limit(perVerified), verifiedBurst
	switch c.Trust {
	case Anonymous:
		return false
	case Verified:
	case Unverified:
		limit, burst = perUnverified, unverifiedBurst
	}
	now, own := b.clock.Now(), b.of(c, limit, burst)
	if !own.AllowN(now, min(questions, burst)) {
		return false
	}
	return c.Trust == Verified || b.all.AllowN(now, min(questions, allBurst))
}

func (b *budgets) of(c Client, limit rate.Limit, burst int) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.clients.Get(c); ok {
		return found.(*rate.Limiter)
	}
	created := rate.NewLimiter(limit, burst)
	b.clients.Add(c, created)
	return created
}
