package frontproxy

import (
	"maps"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// caller is who sends a request.
type caller struct {
	// user is nil if the proxy cannot authenticate the request. A shard then looks at its credentials.
	user user.Info
	// certificate is the client certificate of a logical cluster, for the header clientcertificates.Header; empty if there is none.
	certificate string
	client      questions.Client
}

// users authenticates the users of requests.
type users struct {
	all authenticator.Request
	// certificates remembers which client certificates of users are valid, and certified has their users. Both are nil if something else in
	// all precedes client certificates.
	certificates *peers.Verifier
	certified    *lru.Cache // of user.Info, by *x509.Certificate
}

// maxCertified is the maximum number of users in users.certified.
const maxCertified = 1024

// newUsers returns users that all authenticates, which looks at headers about users first, unless headers is nil, and then at client
// certificates of authorities, unless they are nil. With headers, a certificate alone does not say who the user is, and none is remembered.
func newUsers(all authenticator.Request, authorities peers.Authorities, headers *authenticatorfactory.RequestHeaderConfig,
	now clock.PassiveClock) users {
	u := users{all: all}
	if authorities != nil && headers == nil {
		u.certificates, u.certified = peers.NewVerifier(authorities, now), lru.New(maxCertified)
	}
	return u
}

// remembered authenticates requests whose client certificate was verified in the last minute: verifying it takes as much processor time as
// the rest of a small request. It reads no header.
func (u users) remembered(r *http.Request) (user.Info, bool) {
	if u.certificates == nil || r.TLS == nil || !u.certificates.Remembers(r.TLS.PeerCertificates) {
		return nil, false
	}
	known, ok := u.certified.Get(r.TLS.PeerCertificates[0])
	if !ok {
		return nil, false
	}
	return known.(user.Info), true
}

// authenticate authenticates a request, and removes the credentials that it uses.
func (u users) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := u.all.AuthenticateRequest(r)
	if ok && err == nil {
		u.remember(r)
	}
	return response, ok, err
}

// remember remembers the client certificate of a request if it is valid, and that of a user.
func (u users) remember(r *http.Request) {
	if u.certificates == nil || r.TLS == nil || u.certificates.Verify(r.TLS.PeerCertificates) != nil {
		return
	}
	if response, ok, err := ofCertificate.AuthenticateRequest(r); ok && err == nil {
		u.certified.Add(r.TLS.PeerCertificates[0], response.User)
	}
}

// ofCertificate returns the user of a valid client certificate, as upstream does.
var ofCertificate = group.NewAuthenticatedGroupAdder(authenticator.RequestFunc(
	func(r *http.Request) (*authenticator.Response, bool, error) {
		return x509.CommonNameUserConversion(r.TLS.PeerCertificates)
	}))

// protocolHeader has the tokens of browsers.
const protocolHeader = "Sec-Websocket-Protocol"

// callerOf authenticates a request. Tokens of service accounts and of the issuers of a workspace, and client certificates of logical
// clusters, are left to the shard that holds the logical cluster: it has the keys, and knows whether the account still exists.
func callerOf(r *http.Request, u users) (caller, error) {
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
	if known, ok := u.remembered(r); ok {
		return callerFor(known), nil
	}
	attempt := r.WithContext(r.Context())
	attempt.Header = maps.Clone(r.Header) // authenticators remove the credentials that they use
	if cluster != "" {
		attempt.Header.Del("Authorization")
		attempt.Header.Del(protocolHeader)
	}
	response, ok, err := u.authenticate(attempt)
	switch {
	case ok && err == nil:
		if protocols, sent := r.Header[protocolHeader]; sent && cluster == "" && len(protocols) > 0 {
			r.Header[protocolHeader] = attempt.Header[protocolHeader] // without the token
		}
		return callerFor(response.User), nil
	case tokens:
		return caller{client: questions.Client{Key: network(r), Trust: questions.Unverified}}, nil
	case err != nil:
		return caller{}, apierrors.NewUnauthorized("the credentials of the request are invalid; a front proxy accepts client certificates of " +
			"its --client-ca-file, and of logical clusters")
	}
	return caller{client: questions.Client{Key: network(r), Trust: questions.Anonymous}}, nil
}

// callerFor returns the caller of a request that the proxy has authenticated as a user.
func callerFor(u user.Info) caller {
	return caller{user: u, client: questions.Client{Key: "user:" + u.GetName(), Trust: questions.Verified}}
}
