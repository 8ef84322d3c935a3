// Package questions resolves paths that the index of a front proxy does not have: they may be too new. It asks the shard that holds the
// deepest ancestor that is known, so that the proxy is never wrong because it is late.
package questions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/frontproxy/answer"
	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/process/coalesce"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// timeout is how long a shard may take for an answer.
	timeout = 5 * time.Second
	// maxQuestions is the maximum number of shards on the way of a path, and maxClimb that of owners of a name that are unknown too.
	maxQuestions, maxClimb = 16, 8
	// atOnce is the maximum number of shards that are queried for a name at the same time.
	atOnce = 32
)

// ErrAbsent is the error for a path that does not exist.
var ErrAbsent = errors.New("no such workspace")

// errStale is the error for a path whose parent has moved, so that the shard that was asked is not the one that knows.
var errStale = errors.New("the shard does not hold the parent")

// Ask sends a question to a shard.
type Ask func(ctx context.Context, shard string, q tree.Question) (tree.Answer, error)

// Config of a Resolver.
type Config struct {
	Index *index.Table
	Ask   Ask
	// Shards returns the names of all shards.
	Shards func() []string
	Clock  clock.PassiveClock
	// Asked is called with the result of each question.
	Asked func(err error)
}

// Resolver resolves paths. It never answers an absence from memory.
type Resolver struct {
	config  Config
	budgets *budgets
	calls   *coalesce.Group[call, reply]
}

// call identifies a question.
type call struct {
	shard string
	tree.Question
}

// reply is an answer, and whether it leads to the end of the path, or to another shard.
type reply struct {
	tree.Answer
	leads bool
}

// New returns a resolver.
func New(config Config) *Resolver {
	leads := func(r reply, err error) bool { return err == nil && r.leads }
	return &Resolver{config: config, budgets: newBudgets(config.Clock), calls: coalesce.New[call](leads)}
}

// Resolve returns the place of a canonical path, ErrAbsent, or an error for the client.
func (r *Resolver) Resolve(ctx context.Context, client Client, path string) (index.Place, error) {
	answer := r.config.Index.Lookup(path)
	switch {
	case answer.State == index.Found:
		return answer.Place, nil
	case answer.State == index.Conflict:
		return index.Place{}, unavailable("two workspaces have the same logical cluster; an administrator must find out which one is right")
	case client.Trust == Anonymous:
		return index.Place{}, ErrAbsent // an anonymous user has no permissions in a workspace, whether it exists or not
	}
	return r.ask(ctx, client, answer, path, false)
}

// Confirm resolves a path again, from the storage of the shards: a shard has refused what the index says.
func (r *Resolver) Confirm(ctx context.Context, client Client, path string) (index.Place, error) {
	return r.ask(ctx, client, r.top(path), path, true)
}

// top returns what is known about a path if nothing is assumed but where root is.
func (r *Resolver) top(path string) index.Answer {
	first, rest, _ := strings.Cut(path, ":")
	if first != string(logicalcluster.Root) {
		return index.Answer{Missing: path}
	}
	return index.Answer{Place: r.config.Index.Lookup(first).Place, Missing: rest}
}

func (r *Resolver) ask(ctx context.Context, client Client, known index.Answer, path string, stored bool) (index.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	questions := 1
	if known.Place.Shard == "" {
		questions = len(r.config.Shards())
	}
	if !r.budgets.allow(client, questions) {
		return index.Place{}, apierrors.NewTooManyRequests("too many requests for workspaces that this front proxy does not know; try again", 1)
	}
	place, err := r.resolve(ctx, known, path, stored)
	if errors.Is(err, errStale) {
		place, err = r.resolve(ctx, r.top(path), path, true)
	}
	if errors.Is(err, errStale) {
		err = unavailable("its shards disagree about it; try again")
	}
	return place, err
}

func (r *Resolver) resolve(ctx context.Context, known index.Answer, path string, stored bool) (index.Place, error) {
	at, missing := known.Place, known.Missing
	if at.Shard == "" {
		first, rest, _ := strings.Cut(path, ":")
		var err error
		if at, err = r.find(ctx, logicalcluster.Name(first), stored, maxClimb); err != nil {
			return index.Place{}, err
		}
		missing = rest
	}
	return r.walk(ctx, at, missing, stored)
}

// walk follows a path from a place, from shard to shard.
func (r *Resolver) walk(ctx context.Context, at index.Place, missing string, stored bool) (index.Place, error) {
	for range maxQuestions {
		if missing == "" {
			return at, nil
		}
		answer, err := r.question(ctx, at.Shard, tree.Question{Path: string(at.Cluster) + ":" + missing, Stored: stored})
		if err != nil {
			return index.Place{}, err
		}
		next, left, err := follow(at, missing, answer)
		if errors.Is(err, ErrAbsent) && len(answer.Edges) == 0 {
			err = r.absence(ctx, at, stored)
		}
		if err != nil {
			return index.Place{}, err
		}
		if at, missing = next, left; at.Mount != "" {
			return at, nil
		}
	}
	return index.Place{}, unavailable("its shards say that another one has it; try again")
}

// absence returns ErrAbsent if a shard that does not have a workspace holds its parent, and errStale otherwise: then its word does
// not count.
func (r *Resolver) absence(ctx context.Context, parent index.Place, stored bool) error {
	if parent.Cluster == logicalcluster.Root {
		return ErrAbsent
	}
	answer, err := r.question(ctx, parent.Shard, tree.Question{Path: string(parent.Cluster), Stored: stored})
	if err == nil && answer.Cluster == nil {
		err = errStale
	}
	if err != nil {
		return err
	}
	return ErrAbsent
}

// follow returns how far an answer leads from a place, and what is left of a path.
func follow(at index.Place, missing string, answer tree.Answer) (index.Place, string, error) {
	step, err := answer.Follow(at.Shard, string(at.Cluster)+":"+missing)
	switch {
	case err != nil:
		return index.Place{}, "", unavailable(fmt.Sprintf("the answer of shard %q is not about it", at.Shard))
	case step.Absent:
		return index.Place{}, "", ErrAbsent
	}
	next := at
	next.Shard, next.Cluster, next.Mount, next.Unavailable = step.Shard, step.Cluster, step.Mount, at.Unavailable || step.Unavailable
	switch {
	case step.Moved: // the index is late
		next.UID, next.Epoch = tree.UID{}, 0
	case step.Edge.Name != "":
		next.UID, next.Epoch = step.Edge.UID, max(step.Edge.Epoch, 1)
	}
	if step.Held != nil {
		next.UID = step.Held.UID
	}
	return next, step.Missing, nil
}

// find returns the place of a logical cluster by its name. Every shard may hold it; the one that the owner's record names does.
func (r *Resolver) find(ctx context.Context, name logicalcluster.Name, stored bool, climb int) (index.Place, error) {
	claims, err := r.claims(ctx, name, stored)
	if err != nil {
		return index.Place{}, err
	}
	for _, c := range claims {
		if c.held.Parent == "" {
			if c.shard == peers.Root { // a home
				return index.Place{Shard: c.shard, Cluster: name, UID: c.held.UID, Epoch: max(c.held.Epoch, 1)}, nil
			}
			continue
		}
		owner := r.config.Index.Lookup(string(c.held.Parent))
		if owner.State != index.Found {
			if climb == 0 {
				continue
			}
			if owner.Place, err = r.find(ctx, c.held.Parent, stored, climb-1); errors.Is(err, ErrAbsent) {
				continue
			} else if err != nil {
				return index.Place{}, err
			}
		}
		place, err := r.walk(ctx, owner.Place, c.held.Workspace, stored)
		switch {
		case errors.Is(err, ErrAbsent), errors.Is(err, errStale):
		case err != nil:
			return index.Place{}, err
		case place.Cluster == name && place.Mount == "":
			place.Unavailable = false // a name is no path: the workspaces above do not matter
			return place, nil
		}
	}
	return index.Place{}, ErrAbsent
}

// claimed is a shard that says that it holds a cluster.
type claimed struct {
	shard string
	held  tree.Cluster
}

// claims asks all shards for a logical cluster. If a shard does not answer and no other one has the cluster, the error says so.
func (r *Resolver) claims(ctx context.Context, name logicalcluster.Name, stored bool) ([]claimed, error) {
	var (
		mu      sync.Mutex
		all     []claimed
		failure error
		asking  sync.WaitGroup
		turns   = make(chan struct{}, atOnce)
	)
	for _, shard := range r.config.Shards() {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			answer, err := r.question(ctx, shard, tree.Question{Path: string(name), Stored: stored})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failure = err
			case answer.Cluster != nil && answer.Cluster.Name == name:
				all = append(all, claimed{shard, *answer.Cluster})
			}
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b claimed) int { return strings.Compare(a.shard, b.shard) })
	if len(all) == 0 && failure != nil {
		return nil, failure
	}
	return all, nil
}

// question asks a shard, together with others that want to know the same.
func (r *Resolver) question(ctx context.Context, shard string, q tree.Question) (tree.Answer, error) {
	shared := r.calls.Join(call{shard, q}, func() (reply, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		answer, err := r.config.Ask(ctx, shard, q)
		r.config.Asked(err)
		step, invalid := answer.Follow(shard, q.Path)
		found := answer.Cluster != nil || len(answer.Edges) > 0
		return reply{answer, found && invalid == nil && !step.Absent}, err
	})
	select {
	case <-shared.Done:
	case <-ctx.Done():
		return tree.Answer{}, unavailable(fmt.Sprintf("shard %q takes too long to answer", shard))
	}
	switch err := shared.Err; {
	case err == nil:
		return shared.Value.Answer, nil
	case apierrors.IsTooManyRequests(err):
		return tree.Answer{}, apierrors.NewTooManyRequests(fmt.Sprintf("shard %q is busy; try again", shard), 1)
	default:
		return tree.Answer{}, unavailable(fmt.Sprintf("shard %q does not respond", shard))
	}
}

// unavailable returns the error for a workspace whose place cannot be found now.
func unavailable(why string) error {
	return answer.Unavailable("the workspace cannot be found now, because " + why)
}
