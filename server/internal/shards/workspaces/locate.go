package workspaces

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/process/budget"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// locatedFor is how long an answer of a Locator is used without another question, maxLocated how many answers it remembers. For
	// rememberedFor, the shard that it has found is asked first.
	locatedFor    = 10 * time.Second
	maxLocated    = 4096
	rememberedFor = time.Hour
	// locateTimeout limits one search, parallelQuestions the questions of a search in progress.
	locateTimeout     = 5 * time.Second
	parallelQuestions = 16
	// The rates limit the searches that one client and the requests to one logical cluster cause, all searches, and those that ask every
	// shard. A client alone exhausts only its own.
	searchesPerClient, clientBurst  = 1, 5
	searchesPerCluster, searchBurst = 5, 20
	searchesPerServer, serverBurst  = 50, 100
	wideSearches, wideBurst         = 5, 20
	maxSearchBudgets                = 4096
)

// Locator finds the shard that holds a logical cluster of which this shard knows only the name.
//
// Invariants:
//   - The shard that says that it holds a cluster is believed only if the records from root downward lead to it.
//   - No shard holds a cluster only if every shard has said so. While one does not respond, the answer is an error.
//   - The searches are limited for each client, for each logical cluster whose requests cause them, and in total: beyond that, the answer
//     is 429. The shard of a cluster that was found before is asked in any case: clients that invent clusters do not lock out those that
//     exist.
//   - What one client invents neither makes the answer for another one late, nor removes from memory what was found.
type Locator struct {
	calls  *Calls
	shards func() []string
	known  *cache.LRUExpireCache // the shards of clusters, for locatedFor
	absent *cache.LRUExpireCache // clusters that no shard holds, for locatedFor
	found  *cache.LRUExpireCache // the shards of clusters that exist, for rememberedFor
	asking singleflight.Group

	clients, askers *budget.Budgets // by client, and by cluster
	all, wide       *rate.Limiter
}

// NewLocator returns a locator. shards returns the names of all shards.
func (c *Calls) NewLocator(shards func() []string) *Locator {
	remember := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(maxLocated, c.Clock) }
	return &Locator{
		calls: c, shards: shards, known: remember(), absent: remember(), found: remember(),
		clients: budget.New(searchesPerClient, clientBurst, maxSearchBudgets, c.Clock),
		askers:  budget.New(searchesPerCluster, searchBurst, maxSearchBudgets, c.Clock),
		all:     rate.NewLimiter(searchesPerServer, serverBurst), wide: rate.NewLimiter(wideSearches, wideBurst),
	}
}

// Locate returns the shard that holds a cluster, for a request of a client to the cluster asker, and an empty name if no shard does. hint
// is a shard that may hold it, or empty.
func (l *Locator) Locate(ctx context.Context, cluster, asker logicalcluster.Name, client, hint string) (string, error) {
	if shard, ok := l.known.Get(cluster); ok {
		return shard.(string), nil
	}
	if _, ok := l.absent.Get(cluster); ok {
		return "", nil
	}
	shard, _, err := l.join(ctx, cluster, asker, client, hint)
	return shard, err
}

// LocateNow is Locate for a cluster that may just have been created: no shard holds it only according to a search that begins after the
// call.
func (l *Locator) LocateNow(ctx context.Context, cluster, asker logicalcluster.Name, client, hint string) (string, error) {
	if shard, ok := l.known.Get(cluster); ok {
		return shard.(string), nil
	}
	shard, shared, err := l.join(ctx, cluster, asker, client, hint)
	if shared && shard == "" && err == nil { // the search may have begun before the call
		shard, _, err = l.join(ctx, cluster, asker, client, hint)
	}
	return shard, err
}

// join searches a cluster, or waits for the search of another request of the same client.
func (l *Locator) join(
	ctx context.Context,
	cluster, asker logicalcluster.Name,
	client, hint string,
) (found string, shared bool, err error) {
	// By client: others do not get its 429.
	answer := l.asking.DoChan(client+" "+string(cluster), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), locateTimeout) // other requests may wait for the result
		defer cancel()
		shard, err := l.find(ctx, cluster, asker, client, hint)
		switch {
		case err != nil:
		case shard == "":
			l.absent.Add(cluster, true, locatedFor)
		default:
			l.known.Add(cluster, shard, locatedFor)
			l.found.Add(cluster, shard, rememberedFor)
		}
		return shard, err
	})
	select {
	case result := <-answer:
		return result.Val.(string), result.Shared, result.Err
	case <-ctx.Done():
		return "", false, apierrors.NewServiceUnavailable("the request ended while the shard of a logical cluster was searched")
	}
}

// find asks the shard that had a cluster, and searches otherwise.
func (l *Locator) find(ctx context.Context, cluster, asker logicalcluster.Name, client, hint string) (string, error) {
	if last, ok := l.found.Get(cluster); ok {
		if holds, err := l.holds(ctx, last.(string), cluster); holds && err == nil {
			return last.(string), nil
		}
	}
	if !l.clients.Allow(client) || !l.askers.Allow(asker) || !l.all.AllowN(l.calls.Clock.Now(), 1) {
		return "", tooManySearches()
	}
	return l.search(ctx, cluster, hint)
}

func tooManySearches() error {
	return apierrors.NewTooManyRequests("too many requests of users whose logical cluster this shard does not know: retry the request", 1)
}

// search asks the hinted shard, then all others.
func (l *Locator) search(ctx context.Context, cluster logicalcluster.Name, hint string) (string, error) {
	var others []string
	var unknown error // of the hinted shard: the cluster may have left it
	for _, shard := range l.shards() {
		switch shard {
		case l.calls.Scheduler.ShardName:
		case hint:
			holds, err := l.holds(ctx, shard, cluster)
			if holds && err == nil {
				return shard, nil
			}
			unknown = err
		default:
			others = append(others, shard)
		}
	}
	if len(others) > 0 && !l.wide.AllowN(l.calls.Clock.Now(), 1) {
		return "", tooManySearches()
	}
	shard, err := l.searchIn(ctx, others, cluster)
	if shard == "" && err == nil {
		err = unknown
	}
	return shard, err
}

// searchIn asks shards at the same time.
func (l *Locator) searchIn(ctx context.Context, shards []string, cluster logicalcluster.Name) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		shard string
		holds bool
		err   error
	}
	answers, free := make(chan answer, len(shards)), make(chan struct{}, parallelQuestions)
	for _, shard := range shards {
		go func() {
			free <- struct{}{}
			defer func() { <-free }()
			holds, err := l.holds(ctx, shard, cluster)
			answers <- answer{shard, holds, err}
		}()
	}
	var problem error
	for range shards {
		a := <-answers
		if a.holds {
			return a.shard, nil
		}
		if a.err != nil {
			problem = a.err
		}
	}
	return "", problem
}

// holds reports whether a shard says that it holds a cluster, and the records lead to it.
func (l *Locator) holds(ctx context.Context, shard string, cluster logicalcluster.Name) (bool, error) {
	place, err := peers.Call[located, Parent](ctx, l.calls.Clients, shard, callLocate, located{Cluster: cluster})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking shard %s for logical cluster %s: %w", shard, cluster, err)
	case place.Cluster != cluster:
		return false, nil
	}
	err = l.calls.holders.verify(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, place)
	if apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return false, nil
	}
	return err == nil, err
}

// located is the question for the place of a cluster.
type located struct {
	Cluster logicalcluster.Name `json:"cluster"`
}

// locate returns the place of a cluster that this shard holds.
func (c *Calls) locate(ctx context.Context, _ peers.Identity, in located) (Parent, error) {
	if !logicalcluster.ValidPath(string(in.Cluster)) {
		return Parent{}, apierrors.NewBadRequest("cluster: want the name of a logical cluster")
	}
	lc, err := c.logicalCluster(logicalcluster.WithName(ctx, in.Cluster))
	if apierrors.IsConflict(err) || (err == nil && lc == nil) {
		err = apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), string(in.Cluster))
	}
	if err != nil {
		return Parent{}, err
	}
	return c.place(in.Cluster)
}
