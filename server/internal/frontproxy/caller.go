package frontproxy

import (
	"maps"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
)

// caller is who sends a request.
type caller struct {
	// user is nil if the proxy cannot authenticate the request. A shard then looks at its credentials.
	user user.Info
	// certificate is the client certificate of a logical cluster, for the header clientcertificates.Header; empty if there is none.
	certificate string
	client      questions.Client
}

// protocolHeader has the tokens of browsers.
const protocolHeader = "Sec-Websocket-Protocol"

// callerOf authenticates a request. Tokens of service accounts and of the issuers of a workspace, and client certificates of logical
// clusters, are left to the shard that holds the logical cluster: it has the keys, and knows whether the account still exists.
func callerOf(r *http.Request, authenticate authenticator.Request) (caller, error) {
	if certificate := clientcertificates.Presented(r); certificate != nil {
		value, err := clientcertificates.Format(certificate)
		if err != nil {
			return caller{}, apierrors.NewUnauthorized(err.Error())
		}
		return caller{certificate: value, client: questions.Client{Key: network(r), Trust: questions.Unverified}}, nil
	}
	cluster, tokens, err := authentication.Claimed(r)
	if err != nil {
		return caller{}, apierrors.NewUnauthorized(err.Error())
	}
	attempt := r.WithContext(r.Context())
	attempt.Header = maps.Clone(r.Header) // authenticators remove the credentials that they use
	if cluster != "" {
		attempt.Header.Del("Authorization")
		attempt.Header.Del(protocolHeader)
	}
	response, ok, err := authenticate.AuthenticateRequest(attempt)
	switch {
	case ok && err == nil:
		if protocols, sent := r.Header[protocolHeader]; sent && cluster == "" && len(protocols) > 0 {
			r.Header[protocolHeader] = attempt.Header[protocolHeader] // without the token
		}
		return caller{user: response.User, client: questions.Client{Key: "user:" + response.User.GetName(), Trust: questions.Verified}}, nil
	case tokens:
		return caller{client: questions.Client{Key: network(r), Trust: questions.Unverified}}, nil
	case err != nil:
		return caller{}, apierrors.NewUnauthorized("the credentials of the request are invalid; a front proxy accepts client certificates of " +
			"its --client-ca-file, and of logical clusters")
	}
	return caller{client: questions.Client{Key: network(r), Trust: questions.Anonymous}}, nil
}
