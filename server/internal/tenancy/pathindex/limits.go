package pathindex

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
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
	mu          sync.Mutex // finds and creates budgets
	credentials *lru.Cache
	sources     *lru.Cache
	all         *rate.Limiter
}

func newLookupLimits() *lookupLimits {
	return &lookupLimits{credentials: lru.New(maxBudgets), sources: lru.New(maxBudgets), all: rate.NewLimiter(perServer, serverBurst)}
}

// allow reports whether storage may be read for a request.
func (a *lookupLimits) allow(r *http.Request) bool {
	from := source(r)
	return a.budget(a.credentials, credential(from, r), perCredential, credentialBurst).Allow() &&
		a.budget(a.sources, from, perSource, sourceBurst).Allow() && a.all.Allow()
}

func (a *lookupLimits) budget(known *lru.Cache, key any, limit rate.Limit, burst int) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := known.Get(key); ok {
		return found.(*rate.Limiter)
	}
	created := rate.NewLimiter(limit, burst)
	known.Add(key, created)
	return created
}

// source returns the network of the client: an IPv4 address, or the IPv6 /64 network, all of whose addresses one host
// can have.
func source(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	address = address.Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
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
