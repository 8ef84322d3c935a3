package authentication

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// CallVerdict is the name of the peer call that authenticates a service account token at the shard that holds its logical cluster.
const CallVerdict = "tokens.verdict"

// TokenQuestion is the token that a peer received.
type TokenQuestion struct {
	Token string `json:"token"`
}

// Verdict is the service account of a token. The name is empty if the token is not valid.
type Verdict struct {
	Name  string              `json:"name,omitempty"`
	UID   string              `json:"uid,omitempty"`
	Extra map[string][]string `json:"extra,omitempty"`
}

// Judge returns the function of CallVerdict on the shard that holds a logical cluster. inner is the authenticator of its own requests,
// holds reports whether this shard holds a cluster.
func Judge(inner authenticator.Request,
	holds func(logicalcluster.Name) bool) func(context.Context, peers.Identity, TokenQuestion) (Verdict, error) {
	return func(ctx context.Context, _ peers.Identity, q TokenQuestion) (Verdict, error) {
		claimed := ClaimedCluster(q.Token)
		if claimed == "" || !holds(claimed) {
			return Verdict{}, apierrors.NewBadRequest("the token claims no logical cluster that this shard holds")
		}
		r, err := http.NewRequestWithContext(logicalcluster.WithName(ctx, claimed), http.MethodGet, "/", http.NoBody)
		if err != nil {
			return Verdict{}, err
		}
		r.Header.Set("Authorization", "Bearer "+q.Token)
		response, ok, err := inner.AuthenticateRequest(r)
		if err != nil || !ok {
			return Verdict{}, nil
		}
		if of, single := authorization.ServiceAccountCluster(response.User); !single || of != claimed {
			return Verdict{}, nil
		}
		return Verdict{Name: response.User.GetName(), UID: response.User.GetUID(), Extra: response.User.GetExtra()}, nil
	}
}

// credentialPrefix begins the keys of extra values that describe the credential of a service account.
const credentialPrefix = "authentication.kubernetes.io/"

// responseIn returns the service account in a cluster; false if the verdict names none. The groups and the cluster are not the answer of
// the other shard, which can only decide about accounts of logical clusters that it holds.
func (v Verdict) responseIn(cluster logicalcluster.Name) (*authenticator.Response, bool) {
	namespace, _, err := serviceaccount.SplitUsername(v.Name)
	if err != nil {
		return nil, false
	}
	extra := map[string][]string{logicalcluster.UserExtraKey: {string(cluster)}}
	for key, values := range v.Extra {
		if strings.HasPrefix(key, credentialPrefix) && key != authorization.FormerClusterNameKey {
			extra[key] = values
		}
	}
	groups := append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated)
	return &authenticator.Response{User: &user.DefaultInfo{Name: v.Name, UID: v.UID, Groups: groups, Extra: extra}}, true
}
