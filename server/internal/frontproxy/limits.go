package frontproxy

import (
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/process/budget"
)

// openRequests limits the requests that clients have open, watches included. What the requests cost is limited by the shards, for each
// tenant, however many proxies the tenant uses.
type openRequests struct {
	// perClient and total are the maximum numbers; zero means no limit.
	perClient, total int

	mu      sync.Mutex
	open    int
	clients map[string]int
}

func newOpenRequests(perClient, total int) *openRequests {
	return &openRequests{perClient: perClient, total: total, clients: map[string]int{}}
}

// begin counts a request of a client until end is called.
func (o *openRequests) begin(client string) (end func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.perClient > 0 && o.clients[client] >= o.perClient:
		return nil, apierrors.NewTooManyRequests("this client has too many open requests; close some, or try again", 1)
	case o.total > 0 && o.open >= o.total:
		return nil, apierrors.NewTooManyRequests("this front proxy has too many open requests; try again", 1)
	}
	o.open++
	o.clients[client]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open--
		if o.clients[client]--; o.clients[client] == 0 {
			delete(o.clients, client)
		}
	}, nil
}

// network returns the network of a client.
func network(r *http.Request) string {
	if prefix := budget.Network(r.RemoteAddr); prefix.IsValid() {
		return prefix.String()
	}
	return ""
}
