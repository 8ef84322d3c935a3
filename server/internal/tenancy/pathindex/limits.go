package pathindex

import (
	"crypto/sha256"
	"net/http"
	"net/netip"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/process/budget"
)

// The rate of storage reads for unknown paths. The limits are needed because any client can request paths, before authentication. Clients
// with the same credentials and address share a budget, and so do all clients at one address, because credentials can be invented.
const (
	perCredential, credentialBurst = 100, 200
	perSource, sourceBurst         = 200, 400
	perServer, serverBurst         = 600, 1200
	// maxBudgets is the number of budgets of each kind in memory. A budget that is dropped starts full again.
	maxBudgets = 4096
)

// lookupLimits limits the storage reads for clients, for each client and in total.
type lookupLimits struct {
	credentials, sources *budget.Budgets
	all                  *rate.Limiter
}

func newLookupLimits() *lookupLimits {
	return &lookupLimits{
		credentials: budget.New(perCredential, credentialBurst, maxBudgets, clock.RealClock{}),
		sources:     budget.New(perSource, sourceBurst, maxBudgets, clock.RealClock{}), all: rate.NewLimiter(perServer, serverBurst),
	}
}

// allow reports whether storage may be read for a request.
func (a *lookupLimits) allow(r *http.Request) bool {
	from := budget.Network(r.RemoteAddr)
	return a.credentials.Allow(credential(from, r)) && a.sources.Allow(from) && a.all.Allow()
}

// credential returns a key for the network and the credentials of a request.
func credential(from netip.Prefix, r *http.Request) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write([]byte(from.String() + "\n" + r.Header.Get("Authorization") + "\n"))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
