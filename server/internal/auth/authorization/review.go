package authorization

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/process/coalesce"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// CallReview is the name of the peer call by which the shard that holds an export or a workspace type decides who may use it.
const CallReview = "review"

const (
	// reviewTTL is how long the answer about the use of a view counts, maxReviews how many answers are in memory.
	reviewTTL  = 10 * time.Second
	maxReviews = 4096
	// reviewTimeout limits the wait for an answer.
	reviewTimeout = 5 * time.Second
)

// ReviewQuestion is whether a user may do something with an export or a workspace type.
type ReviewQuestion struct {
	Cluster     logicalcluster.Name `json:"cluster"`
	User        warrant             `json:"user"`
	Verb        string              `json:"verb"`
	Group       string              `json:"group"`
	Resource    string              `json:"resource"`
	Subresource string              `json:"subresource,omitempty"`
	Name        string              `json:"name"`
}

// ReviewAnswer is the decision.
type ReviewAnswer struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// use is what a question is about.
type use int

const (
	unlisted use = iota
	// grant begins the use of an export or a type. It does not require access to the logical cluster of the provider.
	grant
	// view is a request to the virtual workspace of an export or a type.
	view
)

// listed returns what a question is about. Nothing else is decided by another shard.
func listed(verb, group, resource, subresource string) use {
	apis, tenancy, cached := apisv1alpha2.SchemeGroupVersion.Group, tenancyv1alpha1.SchemeGroupVersion.Group,
		cachev1alpha1.SchemeGroupVersion.Group
	switch [3]string{group, resource, subresource} {
	case [3]string{apis, "apiexports", "content"}:
		return view
	case [3]string{apis, "apiexports", ""}, [3]string{cached, "clustercachedresources", ""}:
		if verb == "bind" {
			return grant
		}
	case [3]string{tenancy, "workspacetypes", ""}:
		switch verb {
		case "use":
			return grant
		case "initialize", "terminate":
			return view
		}
	}
	return unlisted
}

// Review returns the function of CallReview on the shard that holds an export or type. inner decides about requests in its logical
// clusters, with all roles that this shard has acknowledged. holds reports whether this shard holds a logical cluster.
func Review(inner authorizer.UnconditionalAuthorizer, holds func(context.Context, peers.Identity, logicalcluster.Name) (bool, error),
) func(context.Context, peers.Identity, ReviewQuestion) (ReviewAnswer, error) {
	return func(ctx context.Context, caller peers.Identity, q ReviewQuestion) (ReviewAnswer, error) {
		about := listed(q.Verb, q.Group, q.Resource, q.Subresource)
		if about == unlisted || q.Name == "" || q.User.User == "" {
			return ReviewAnswer{}, apierrors.NewBadRequest(
				fmt.Sprintf("%q %q of %q is not decided for other shards", q.Verb, q.Resource+"/"+q.Subresource, q.Group))
		}
		held, err := holds(ctx, caller, q.Cluster)
		if err != nil {
			return ReviewAnswer{}, err
		}
		if !held {
			return ReviewAnswer{}, apierrors.NewBadRequest(fmt.Sprintf("this shard does not hold the logical cluster %q", q.Cluster))
		}
		ctx = logicalcluster.WithName(ctx, q.Cluster)
		if about == grant {
			ctx = Deep(ctx)
		}
		decision, reason, err := inner.Authorize(ctx, authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: q.User.User, UID: q.User.UID, Groups: q.User.Groups, Extra: q.User.Extra},
			Verb: q.Verb, APIGroup: q.Group, APIVersion: "*", Resource: q.Resource, Subresource: q.Subresource, Name: q.Name,
			ResourceRequest: true,
		})
		if err != nil {
			return ReviewAnswer{}, err
		}
		return ReviewAnswer{Allowed: decision == allow, Reason: reason}, nil
	}
}

// ReviewsConfig is the configuration of Reviews.
type ReviewsConfig struct {
	// Shard is this shard.
	Shard string
	// Holder returns the shard that holds a logical cluster.
	Holder func(logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Holds reports whether this shard has a logical cluster.
	Holds func(logicalcluster.Name) bool
	// Find returns the shard that holds a cluster that Holder does not know, and an empty name if no shard does. Its errors, and those of
	// Unanswered, are retriable.
	Find func(ctx context.Context, cluster logicalcluster.Name) (shard string, err error)
	// Unanswered returns the error for clients if a shard does not decide about a cluster.
	Unanswered func(shard string, cluster logicalcluster.Name, err error) error
	// Ask sends CallReview to a shard.
	Ask   func(ctx context.Context, shard string, q ReviewQuestion) (ReviewAnswer, error)
	Clock clock.PassiveClock
}

// Reviews lets the shards that hold exports and workspace types decide who may use them.
//
// Invariants:
//   - New grants, bind and use, are decided by the holder after the request has begun: requests share an answer only if its question was
//     sent while they waited. Without an answer, the error is retriable.
//   - Requests to a view are decided by the holder too, and its answer counts for ten seconds. While the holder does not respond, the roles
//     and bindings that this shard has of it decide, so that what was granted goes on.
//   - A decision about a logical cluster of this shard, or of no known shard, is never that of another shard.
type Reviews struct {
	config ReviewsConfig
	known  *cache.LRUExpireCache
	// asked are the questions that are being answered. A tenant who creates many workspaces needs the same permission each time.
	asked *coalesce.Group[string, ReviewAnswer]
}

// NewReviews returns the reviews of a shard.
func NewReviews(config ReviewsConfig) *Reviews {
	return &Reviews{
		config: config, known: cache.NewLRUExpireCacheWithClock(maxReviews, config.Clock), asked: coalesce.New[string, ReviewAnswer](nil),
	}
}

// Authorizer returns inner with the decisions of other shards about their exports and workspace types.
func (r *Reviews) Authorizer(inner authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		about := unlisted
		if a.IsResourceRequest() {
			about = listed(a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource())
		}
		if about == unlisted || a.GetName() == "" || a.GetUser() == nil {
			return inner.Authorize(ctx, a)
		}
		cluster, err := logicalcluster.NameFrom(ctx)
		if err != nil {
			return inner.Authorize(ctx, a)
		}
		shard, err := r.holder(ctx, cluster)
		if err != nil {
			return noOpinion, "", err
		}
		if shard == "" || shard == r.config.Shard {
			return inner.Authorize(ctx, a)
		}
		answer, err := r.ask(ctx, shard, about, questionOf(ctx, cluster, a))
		switch {
		case err != nil && about == view && peers.IsUnreachable(err):
			return inner.Authorize(Deep(ctx), a)
		case err != nil:
			return noOpinion, "", r.config.Unanswered(shard, cluster, err)
		case answer.Allowed:
			return allow, answer.Reason, nil
		}
		return noOpinion, answer.Reason, nil
	})
}

// holder returns the shard that decides about a cluster, and an empty name if no shard holds it.
func (r *Reviews) holder(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	if shard, _, known := r.config.Holder(cluster); known {
		return shard, nil
	}
	if r.config.Holds(cluster) || cluster.IsSystem() {
		return r.config.Shard, nil
	}
	return r.config.Find(ctx, cluster)
}

func questionOf(ctx context.Context, cluster logicalcluster.Name, a authorizer.Attributes) ReviewQuestion {
	u := a.GetUser()
	if impersonated := ImpersonatedUser(ctx); impersonated != nil {
		u = impersonated
	}
	return ReviewQuestion{
		Cluster: cluster, User: warrant{User: u.GetName(), UID: u.GetUID(), Groups: slices.Clone(u.GetGroups()), Extra: u.GetExtra()},
		Verb: a.GetVerb(), Group: a.GetAPIGroup(), Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
	}
}

func (r *Reviews) ask(ctx context.Context, shard string, about use, q ReviewQuestion) (ReviewAnswer, error) {
	encoded, err := json.Marshal(q) // sorts the keys of the extra values
	if err != nil {
		return ReviewAnswer{}, err
	}
	key := fmt.Sprintf("%s %x", shard, sha256.Sum256(encoded))
	if about == view {
		if found, ok := r.known.Get(key); ok {
			return found.(ReviewAnswer), nil
		}
	}
	defer fairqueue.From(ctx).Stand()() // the request waits for another shard
	asked := r.asked.Join(key, func() (ReviewAnswer, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout) // others may wait when this request ends
		defer cancel()
		answer, err := r.config.Ask(ctx, shard, q)
		if err == nil && about == view {
			r.known.Add(key, answer, reviewTTL)
		}
		return answer, err
	})
	select {
	case <-asked.Done:
		return asked.Value, asked.Err
	case <-ctx.Done():
		return ReviewAnswer{}, ctx.Err()
	}
}
