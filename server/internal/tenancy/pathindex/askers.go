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

// How often storage is asked for what is not known: requests for paths come from anybody, and are not authenticated yet. Who presents the
// same credentials from the same address shares a budget, and so do all at one address, because credentials can be made up.
const (
	perCredential, credentialBurst = 100, 200
	perSource, sourceBurst         = 200, 400
	perServer, serverBurst         = 600, 1200
	// maxAskers is the number of budgets of each kind that are remembered. Forgotten ones are full again.
	maxAskers = 4096
)

// askers bound what clients may ask storage for, each of them and all together.
type askers struct {
	mu          sync.Mutex // finds and creates budgets
	credentials *lru.Cache
	sources     *lru.Cache
	all         *rate.Limiter
}

func newAskers() *askers {
	return &askers{credentials: lru.New(maxAskers), sources: lru.New(maxAskers), all: rate.NewLimiter(perServer, serverBurst)}
}

// allow returns whether storage may be asked on behalf of a request.
func (a *askers) allow(r *http.Request) bool {
	from := source(r)
	return a.budget(a.credentials, credential(from, r), perCredential, credentialBurst).Allow() &&
		a.budget(a.sources, from, perSource, sourceBurst).Allow() && a.all.Allow()
}

func (a *askers) budget(known *lru.Cache, key any, limit rate.Limit, burst int) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := known.Get(key); ok {
		return found.(*rate.Limiter)
	}
	created := rate.NewLimiter(limit, burst)
	known.Add(key, created)
	return created
}

// source returns the network that a request comes from: an IPv4 address, or the /64 that one host has all addresses of.
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

// credential returns what stands for the network and the credentials of a request.
func credential(from netip.Prefix, r *http.Request) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write([]byte(from.String() + "\n" + r.Header.Get("Authorization") + "\n"))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
