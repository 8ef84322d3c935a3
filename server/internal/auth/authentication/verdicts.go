package authentication

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// verdictTTL is how long a verdict counts: a token that is revoked on another shard works for so long.
	verdictTTL = 10 * time.Second
	// verdictTimeout limits the wait for a verdict.
	verdictTimeout = 5 * time.Second
	// maxVerdicts limits the verdicts in memory, maxVerdictBudgets the clusters whose questions are counted.
	maxVerdicts, maxVerdictBudgets = 4096, 4096
	// The rates limit the questions that clients without valid tokens can cause, for one logical cluster and in total.
	verdictsPerCluster, verdictBurst  = 50, 100
	verdictsPerServer, serverVerdicts = 500, 1000
)

// VerdictsConfig is the configuration of Verdicts.
type VerdictsConfig struct {
	// Shard is this shard.
	Shard string
	// Holder returns the shard that holds a logical cluster.
	Holder func(logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Holds reports whether this shard has a logical cluster.
	Holds func(logicalcluster.Name) bool
	// Locate returns the shard that holds a cluster that Holder does not know, for a request to the cluster asker, and an empty name if no
	// shard does. hint is a shard that may hold it, or empty.
	Locate func(ctx context.Context, cluster, asker logicalcluster.Name, hint string) (shard string, err error)
	// Ask sends CallVerdict to a shard.
	Ask        func(ctx context.Context, shard string, q TokenQuestion) (Verdict, error)
	Serializer runtime.NegotiatedSerializer
	Clock      clock.PassiveClock
}

// Verdicts authenticates service accounts of logical clusters that other shards hold, because each shard signs tokens with its own key.
//
// Invariants:
//   - A token is sent to one shard only: the one that holds the cluster that the token claims. A token that claims a cluster of this shard,
//     one that no shard holds, or none is sent to no shard.
//   - A verdict is only about service accounts of that cluster.
//   - Without an answer, nothing is authenticated: the client gets 503, or 429 beyond the limits.
type Verdicts struct {
	config  VerdictsConfig
	known   *cache.LRUExpireCache
	asking  singleflight.Group
	all     *rate.Limiter
	mu      sync.Mutex // finds and creates budgets
	budgets *lru.Cache
}

// NewVerdicts returns the verdicts of a shard.
func NewVerdicts(config VerdictsConfig) *Verdicts {
	return &Verdicts{
		config: config, known: cache.NewLRUExpireCacheWithClock(maxVerdicts, config.Clock),
		all: rate.NewLimiter(verdictsPerServer, serverVerdicts), budgets: lru.New(maxVerdictBudgets),
	}
}

// judged is the verdict on the token of a request.
type judged struct {
	token    string
	response *authenticator.Response
}

type judgedKey struct{}

// WithVerdict gets the verdict on the token of a request, for Authenticator. It must run before authentication.
func (v *Verdicts) WithVerdict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tokens := slices.Compact(bearerTokens(r)); len(tokens) == 1 {
			response, err := v.of(r.Context(), tokens[0])
			if err != nil {
				responsewriters.ErrorNegotiated(err, v.config.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
			if response != nil {
				r = r.WithContext(context.WithValue(r.Context(), judgedKey{}, judged{tokens[0], response}))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Authenticator returns an authenticator of requests that WithVerdict has passed.
func (v *Verdicts) Authenticator() authenticator.Request {
	token := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		j, ok := ctx.Value(judgedKey{}).(judged)
		if !ok || j.token != token {
			return nil, false, nil
		}
		return j.response, true, nil
	})
	return union.New(bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
}

// of returns the service account of a token that another shard decides about, and nil for other and for invalid tokens.
func (v *Verdicts) of(ctx context.Context, token string) (*authenticator.Response, error) {
	claimed, hint := claimedPlace(token)
	if claimed == "" || v.config.Holds(claimed) {
		return nil, nil
	}
	shard, err := v.holder(ctx, claimed, hint)
	if err != nil || shard == "" || shard == v.config.Shard {
		return nil, err
	}
	verdict, err := v.ask(ctx, shard, claimed, token)
	if err != nil {
		return nil, err
	}
	response, ok := verdict.responseIn(claimed)
	if !ok {
		return nil, nil
	}
	return response, nil
}

// holder returns the shard that holds a cluster, an empty name if no shard does.
func (v *Verdicts) holder(ctx context.Context, cluster logicalcluster.Name, hint string) (string, error) {
	if shard, _, known := v.config.Holder(cluster); known {
		return shard, nil
	}
	asker, _ := logicalcluster.NameFrom(ctx) // empty for requests without a cluster, which share one budget
	shard, err := v.config.Locate(ctx, cluster, asker, hint)
	if err != nil && !apierrors.IsTooManyRequests(err) {
		err = unlocated(cluster, err)
	}
	return shard, err
}

// unlocated returns the error for clients if the holder of a cluster was not found because shards did not respond.
func unlocated(cluster logicalcluster.Name, err error) error {
	result := apierrors.NewServiceUnavailable(
		fmt.Sprintf("finding the shard of logical cluster %s, to which the service account belongs: %v: retry the request", cluster, err))
	result.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return result
}

func (v *Verdicts) ask(ctx context.Context, shard string, claimed logicalcluster.Name, token string) (Verdict, error) {
	key := fmt.Sprintf("%s %x", shard, sha256.Sum256([]byte(token)))
	if found, ok := v.known.Get(key); ok {
		return found.(Verdict), nil
	}
	answer := v.asking.DoChan(key, func() (any, error) {
		if !v.budget(claimed).Allow() || !v.all.Allow() {
			return nil, apierrors.NewTooManyRequests("too many unknown service account tokens of another shard: retry the request", 1)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictTimeout) // other requests may wait for the result
		defer cancel()
		verdict, err := v.config.Ask(ctx, shard, TokenQuestion{Token: token})
		if err != nil {
			return nil, unanswered(shard, err)
		}
		v.known.Add(key, verdict, verdictTTL)
		return verdict, nil
	})
	select {
	case result := <-answer:
		if result.Err != nil {
			return Verdict{}, result.Err
		}
		return result.Val.(Verdict), nil
	case <-ctx.Done():
		return Verdict{}, apierrors.NewServiceUnavailable("the request ended while shard " + shard + " was asked about its token")
	}
}

// unanswered returns the error for clients if a shard gave no verdict.
func unanswered(shard string, err error) error {
	message := fmt.Sprintf("the service account belongs to shard %s, which does not accept the question about its token: retry the request",
		shard)
	if peers.IsUnreachable(err) {
		message = fmt.Sprintf("the service account belongs to shard %s, which does not respond: retry the request", shard)
	}
	result := apierrors.NewServiceUnavailable(message)
	result.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return result
}

func (v *Verdicts) budget(cluster logicalcluster.Name) *rate.Limiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	if found, ok := v.budgets.Get(cluster); ok {
		return found.(*rate.Limiter)
	}
	created := rate.NewLimiter(verdictsPerCluster, verdictBurst)
	v.budgets.Add(cluster, created)
	return created
}
