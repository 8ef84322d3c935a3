package authentication

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
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

	"github.com/kcplane/kcp/server/internal/process/budget"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// verdictTTL is how long a verdict counts: a token that is revoked on another shard works for so long.
	verdictTTL = 10 * time.Second
	// verdictTimeout limits the wait for a verdict.
	verdictTimeout = 5 * time.Second
	// trustedFor is how long a token that was valid is asked about beyond the limits: clients that invent tokens do not lock it out.
	trustedFor = time.Hour
	// maxVerdicts limits the verdicts of each kind in memory, maxVerdictBudgets the clients and clusters whose questions are counted.
	maxVerdicts, maxVerdictBudgets = 4096, 4096
	// The rates limit the questions about unknown tokens: of one client, for one logical cluster, and in total. A client alone exhausts only
	// its own.
	verdictsPerClient, clientBurst    = 10, 40
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
	// Locate returns the shard that holds a cluster that Holder does not know, for a request of a client to the cluster asker, and an empty
	// name if no shard does. hint is a shard that may hold it, or empty.
	Locate func(ctx context.Context, cluster, asker logicalcluster.Name, client, hint string) (shard string, err error)
	// IsProxy reports whether a front proxy sends a request, according to its valid certificate.
	IsProxy func(*http.Request) bool
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
//   - A client that invents tokens exhausts only its own limit, and removes no verdict on a valid token from memory.
type Verdicts struct {
	config         VerdictsConfig
	valid, refused *cache.LRUExpireCache // of Verdict
	trusted        *cache.LRUExpireCache // tokens that were valid
	asking         singleflight.Group

	clients, clusters *budget.Budgets
	all               *rate.Limiter
}

// NewVerdicts returns the verdicts of a shard.
func NewVerdicts(config VerdictsConfig) *Verdicts {
	remember := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(maxVerdicts, config.Clock) }
	return &Verdicts{
		config: config, valid: remember(), refused: remember(), trusted: remember(),
		clients:  budget.New(verdictsPerClient, clientBurst, maxVerdictBudgets, config.Clock),
		clusters: budget.New(verdictsPerCluster, verdictBurst, maxVerdictBudgets, config.Clock),
		all:      rate.NewLimiter(verdictsPerServer, serverVerdicts),
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
			response, err := v.of(r.Context(), tokens[0], v.Client(r))
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
func (v *Verdicts) of(ctx context.Context, token, client string) (*authenticator.Response, error) {
	claimed, hint := claimedPlace(token)
	if claimed == "" || v.config.Holds(claimed) {
		return nil, nil
	}
	shard, err := v.holder(ctx, claimed, client, hint)
	if err != nil || shard == "" || shard == v.config.Shard {
		return nil, err
	}
	verdict, err := v.ask(ctx, shard, claimed, client, token)
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
func (v *Verdicts) holder(ctx context.Context, cluster logicalcluster.Name, client, hint string) (string, error) {
	if shard, _, known := v.config.Holder(cluster); known {
		return shard, nil
	}
	asker, _ := logicalcluster.NameFrom(ctx) // empty for requests without a cluster, which share one budget
	shard, err := v.config.Locate(ctx, cluster, asker, client, hint)
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

// Client returns the network of the client of a request: of the address that a front proxy names, if one sends the request.
func (v *Verdicts) Client(r *http.Request) string {
	address := r.RemoteAddr
	if forwarded := r.Header.Values("X-Forwarded-For"); len(forwarded) > 0 && v.config.IsProxy(r) {
		last := forwarded[len(forwarded)-1]
		address = strings.TrimSpace(last[strings.LastIndex(last, ",")+1:])
	}
	return budget.Network(address).String()
}

// remembered returns the verdict on a token, if one still counts.
func (v *Verdicts) remembered(key string) (Verdict, bool) {
	for _, known := range []*cache.LRUExpireCache{v.valid, v.refused} {
		if found, ok := known.Get(key); ok {
			return found.(Verdict), true
		}
	}
	return Verdict{}, false
}

func (v *Verdicts) remember(key string, verdict Verdict) {
	if verdict.Name == "" {
		v.trusted.Remove(key)
		v.refused.Add(key, verdict, verdictTTL)
		return
	}
	v.trusted.Add(key, true, trustedFor)
	v.valid.Add(key, verdict, verdictTTL)
}

// allow reports whether a client may cause a question about a token of a cluster.
func (v *Verdicts) allow(client string, claimed logicalcluster.Name, key string) bool {
	if _, ok := v.trusted.Get(key); ok {
		return true
	}
	return v.clients.Allow(client) && v.clusters.Allow(claimed) && v.all.AllowN(v.config.Clock.Now(), 1)
}

func (v *Verdicts) ask(ctx context.Context, shard string, claimed logicalcluster.Name, client, token string) (Verdict, error) {
	key := fmt.Sprintf("%s %x", shard, sha256.Sum256([]byte(token)))
	if verdict, ok := v.remembered(key); ok {
		return verdict, nil
	}
	answer := v.asking.DoChan(client+" "+key, func() (any, error) { // by client: others do not get its 429
		if !v.allow(client, claimed, key) {
			return nil, apierrors.NewTooManyRequests("too many unknown service account tokens of another shard: retry the request", 1)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictTimeout) // other requests may wait for the result
		defer cancel()
		verdict, err := v.config.Ask(ctx, shard, TokenQuestion{Token: token})
		if err != nil {
			return nil, unanswered(shard, err)
		}
		v.remember(key, verdict)
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
