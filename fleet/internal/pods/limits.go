package pods

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The maximum numbers of open requests: calls are over soon, streams stay open. A workspace cannot use all those of a cluster.
const (
	callsOfWorkspace, callsOfCluster     = 8, 128
	streamsOfWorkspace, streamsOfCluster = 32, 256
	// parallel calls of one request.
	parallel = 4
	// maxSources is the maximum number of namespaces and clusters of one request.
	maxSources = 64
)

// count limits how many requests are open, by what they count against. It has entries only for those with open requests.
type count struct {
	what string
	most int

	mu   sync.Mutex // guards open
	open map[string]int
}

// begin counts a request until done is called, or refuses it.
func (c *count) begin(key string) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key] >= c.most {
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("%s %s has %d open requests for pods, which is the limit: close some, or try again later", c.what, key, c.most), 1)
	}
	if c.open == nil {
		c.open = map[string]int{}
	}
	c.open[key]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[key]--; c.open[key] <= 0 {
			delete(c.open, key)
		}
	}), nil
}

// limits are those of one kind of requests.
type limits struct{ ofWorkspace, ofCluster count }

func newLimits(ofWorkspace, ofCluster int) *limits {
	return &limits{count{what: "workspace", most: ofWorkspace}, count{what: "cluster", most: ofCluster}}
}
