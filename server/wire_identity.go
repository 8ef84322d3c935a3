package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/shards/lookup"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// holds reports whether this shard has a logical cluster.
func (i *installation) holds(cluster logicalcluster.Name) bool {
	_, err := i.tenancy.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	return err == nil
}

// verifyProxies returns the verifier of the certificates of front proxies, which all authenticators share. It is nil without front proxies.
func (i *installation) verifyProxies(headers *authenticatorfactory.RequestHeaderConfig) *peers.Verifier {
	if i == nil || headers == nil {
		return nil
	}
	return peers.NewVerifier(headers.CAContentProvider, clock.RealClock{})
}

// forwarded adds the client certificates of logical clusters that front proxies forward to those that certificates authenticates.
func (i *installation) forwarded(certificates authenticator.Request, headers *authenticatorfactory.RequestHeaderConfig,
	proxies *peers.Verifier) authenticator.Request {
	if proxies == nil {
		return certificates
	}
	return authentication.Forwarded(certificates, headers, proxies, i.holds)
}

// authenticate adds the users that other shards and front proxies vouch for to those of all. own authenticates the tokens of this shard.
// headers are those in which a front proxy describes users.
func (i *installation) authenticate(all, own authenticator.Request, headers *authenticatorfactory.RequestHeaderConfig,
	proxies *peers.Verifier, audiences authenticator.Audiences, s runtime.NegotiatedSerializer) authenticator.Request {
	if i == nil {
		return all
	}
	peers.Handle(i.calls, authentication.CallVerdict, []peers.Kind{peers.Shard, peers.Proxy}, authentication.Judge(own, i.holds))
	i.verdicts = authentication.NewVerdicts(authentication.VerdictsConfig{
		Shard: i.opts.ShardName, Holder: i.holders.Holder, Serializer: s, Clock: clock.RealClock{},
		Holds: i.holds, Locate: i.locator.Locate,
		IsProxy: func(r *http.Request) bool {
			caller, err := i.calls.Caller(r)
			return err == nil && caller.Kind == peers.Proxy
		},
		Ask: func(ctx context.Context, shard string, q authentication.TokenQuestion) (authentication.Verdict, error) {
			return peers.Call[authentication.TokenQuestion, authentication.Verdict](ctx, i.clients, shard, authentication.CallVerdict, q)
		},
	})
	all = union.New(all, i.verdicts.Authenticator())
	if proxies != nil {
		all = union.New(authentication.Stated(headers, proxies, audiences), all)
	}
	return authentication.FromProxies(all, headers)
}

// withVerdicts gets the verdicts of other shards on service account tokens.
func (i *installation) withVerdicts(next http.Handler) http.Handler {
	if i == nil {
		return next
	}
	return lookup.WithClient(i.verdicts.WithVerdict(next), i.verdicts.Client)
}

// authorize adds the decisions of other shards about their exports and workspace types to own, which decides for this shard.
func (i *installation) authorize(own authorizer.Authorizer) authorizer.Authorizer {
	if i == nil {
		return own
	}
	peers.Handle(i.calls, authorization.CallReview, []peers.Kind{peers.Shard},
		authorization.Review(authorization.Current(i.tenancy.set, own), i.holdsNow))
	return authorization.NewReviews(authorization.ReviewsConfig{
		Shard: i.opts.ShardName, Holder: i.holders.Holder, Holds: i.holds, Find: i.finder.Holder, Unanswered: lookup.Unanswered,
		Clock: clock.RealClock{},
		Ask: func(ctx context.Context, shard string, q authorization.ReviewQuestion) (authorization.ReviewAnswer, error) {
			return peers.Call[authorization.ReviewQuestion, authorization.ReviewAnswer](ctx, i.clients, shard, authorization.CallReview, q)
		},
	}).Authorizer(own)
}
