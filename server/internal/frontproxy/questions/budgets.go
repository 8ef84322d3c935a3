package questions

import (
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/process/budget"
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
	verified, unverified, all *budget.Budgets
}

func newBudgets(c clock.PassiveClock) *budgets {
	return &budgets{
		verified: budget.New(perVerified, verifiedBurst, maxBudgets, c), unverified: budget.New(perUnverified, unverifiedBurst, maxBudgets, c),
		all: budget.New(perAll, allBurst, 1, c),
	}
}

// allow reports whether a client may cause a number of questions.
func (b *budgets) allow(c Client, questions int) bool {
	switch c.Trust {
	case Anonymous:
		return false
	case Verified:
		return b.verified.AllowN(c.Key, questions)
	case Unverified:
		return b.unverified.AllowN(c.Key, questions) && b.all.AllowN(nil, questions)
	}
	return false
}
