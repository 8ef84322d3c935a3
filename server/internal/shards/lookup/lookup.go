// Package lookup asks other shards for what a request refers to and this shard has not received: the feed brings it a moment after it was
// created.
package lookup

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/process/budget"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// timeout is how long the answers to one question may take together.
	timeout = 5 * time.Second
	// maxSteps limits how many shards get a question about one path.
	maxSteps = 16
	// locatedFor is how long the shard of a cluster counts that was found by its path, maxLocated how many are in memory.
	locatedFor = 10 * time.Second
	maxLocated = 4096
	// The rates limit the questions that one user causes, the requests to the logical clusters of one organization, and all requests.
	perClient, clientBurst = 100, 200
	perPayer, payerBurst   = 200, 400
	perServer, serverBurst = 1000, 2000
	maxBudgets             = 4096
)

// Config is the configuration of a Finder.
type Config struct {
	// Shard is this shard.
	Shard string
	// Holder returns the shard that holds a logical cluster, according to what shards offer.
	Holder func(logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Search returns the shard that holds a cluster that Holder does not know, for a request of a client to the cluster asker, and an empty
	// name if no shard does.
	Search func(ctx context.Context, cluster, asker logicalcluster.Name, client, hint string) (shard string, err error)
	// Resolve resolves a path at a shard, which can be this one.
	Resolve func(ctx context.Context, shard string, q tree.Question) (tree.Answer, error)
	// Exists sends CallExists to a shard, which can be this one.
	Exists func(ctx context.Context, shard string, q Question) (Answer, error)
	// Payer returns the organization that a cluster is charged to.
	Payer func(logicalcluster.Name) string
	Clock clock.PassiveClock
}

// Finder asks other shards. It is a references.Shards.
//
// Invariants:
//   - Nothing is absent on the word of memory, or of a shard that does not hold the parent.
//   - A shard is believed about the workspaces in clusters that it holds, and about those clusters themselves.
//   - Without an answer, the error is retriable; beyond the limits it is 429. A tenant alone exhausts only its own limits.
//   - A request has no seat while it waits for other shards.
type Finder struct {
	config  Config
	located *cache.LRUExpireCache // shards by cluster

	clients, payers *budget.Budgets
	all             *rate.Limiter
}

var _ references.Shards = (*Finder)(nil)

// New returns a finder.
func New(config Config) *Finder {
	return &Finder{
		config: config, located: cache.NewLRUExpireCacheWithClock(maxLocated, config.Clock),
		clients: budget.New(perClient, clientBurst, maxBudgets, config.Clock), payers: budget.New(perPayer, payerBurst, maxBudgets, config.Clock),
		all: rate.NewLimiter(perServer, serverBurst),
	}
}

// Locate implements references.Shards. A path begins with the name of a logical cluster.
func (f *Finder) Locate(ctx context.Context, path string) (logicalcluster.Name, bool, error) {
	if !logicalcluster.ValidPath(path) {
		return "", false, nil
	}
	if err := f.allow(ctx); err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer fairqueue.From(ctx).Stand()() // the request waits for other shards
	first, _, _ := strings.Cut(path, ":")
	shard, err := f.holder(ctx, logicalcluster.Name(first))
	if err != nil || shard == "" {
		return "", false, err
	}
	return f.walk(ctx, shard, path)
}

// Has implements references.Shards.
func (f *Finder) Has(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource, name string) (bool, error) {
	if err := f.allow(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer fairqueue.From(ctx).Stand()()
	shard, err := f.holder(ctx, cluster)
	if err != nil || shard == "" {
		return false, err
	}
	answer, err := f.config.Exists(ctx, shard, Question{Cluster: cluster, Group: resource.Group, Resource: resource.Resource, Name: name})
	if err != nil {
		f.located.Remove(cluster) // it may have moved
		return false, Unanswered(shard, cluster, err)
	}
	return answer.Exists, nil
}

// Holder returns the shard that holds a cluster which this shard does not hold, and an empty name if no shard does.
func (f *Finder) Holder(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	if _, _, known := f.config.Holder(cluster); !known {
		if err := f.allow(ctx); err != nil {
			return "", err
		}
	}
	if shard, ok := f.known(cluster); ok {
		return shard, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer fairqueue.From(ctx).Stand()()
	return f.find(ctx, cluster)
}

// holder returns the shard that holds a cluster, and an empty name if no shard does.
func (f *Finder) holder(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	if shard, ok := f.known(cluster); ok {
		return shard, nil
	}
	return f.find(ctx, cluster)
}

// known returns the shard that holds a cluster if no question is necessary.
func (f *Finder) known(cluster logicalcluster.Name) (string, bool) {
	if cluster == logicalcluster.Root {
		return placement.RootShard, true
	}
	if shard, _, known := f.config.Holder(cluster); known {
		return shard, true
	}
	shard, ok := f.located.Get(cluster)
	if !ok {
		return "", false
	}
	return shard.(string), true
}

// find asks which shard holds a cluster.
func (f *Finder) find(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	// Another server of this shard may have created the cluster.
	own, err := f.config.Resolve(ctx, f.config.Shard, tree.Question{Path: string(cluster)})
	switch {
	case err != nil:
		return "", Unanswered(f.config.Shard, cluster, err)
	case own.Cluster != nil:
		return f.config.Shard, nil
	}
	asker, _ := logicalcluster.NameFrom(ctx)
	shard, err := f.config.Search(ctx, cluster, asker, clientOf(ctx), "")
	if err != nil && !apierrors.IsTooManyRequests(err) {
		err = references.Unavailable(fmt.Sprintf("finding the shard of logical cluster %s: %v: retry the request", cluster, err))
	}
	return shard, err
}

// allow returns an error if a request may not cause another question.
func (f *Finder) allow(ctx context.Context) error {
	payer := ""
	if cluster, err := logicalcluster.NameFrom(ctx); err == nil {
		payer = f.config.Payer(cluster)
	}
	if f.clients.Allow(clientOf(ctx)) && f.payers.Allow(payer) && f.all.AllowN(f.config.Clock.Now(), 1) {
		return nil
	}
	return apierrors.NewTooManyRequests(
		"too many requests refer to what this shard does not know, and other shards may have: retry the request",
		1,
	)
}

type clientKey struct{}

// WithClient names the client of a request that is not authenticated yet, by its network.
func WithClient(next http.Handler, network func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, network(r))))
	})
}

// clientOf returns the client that causes questions: the user, or the network of one that is not authenticated.
func clientOf(ctx context.Context) string {
	if u, ok := request.UserFrom(ctx); ok {
		return "user " + u.GetName()
	}
	network, _ := ctx.Value(clientKey{}).(string)
	return "network " + network
}

// Unanswered returns the error for clients if a shard does not decide about a logical cluster.
func Unanswered(shard string, cluster logicalcluster.Name, err error) error {
	if apierrors.IsTooManyRequests(err) {
		return err
	}
	return references.Unavailable(fmt.Sprintf("asking shard %s, which holds logical cluster %s: %v: retry the request", shard, cluster, err))
}
