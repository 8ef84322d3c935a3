package server

import (
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/auth/workspaceauth"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/process/stack"
	"github.com/kcplane/kcp/server/internal/request/home"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// authn authenticates requests.
type authn struct {
	authenticator authenticator.Request
	// reviews authenticates the tokens of TokenReviews.
	reviews authenticator.Request
	// certificates signs client certificates of logical clusters, and authenticates with them.
	certificates *clientcertificates.Authority
}

// newAuthn wraps upstream's authenticators in those of kcp, and makes the server request client certificates of its authority.
func newAuthn(opts options.Completed, up *upstream, tenancy *tenancy, served *served, calls *outbound.Calls,
	tokens *kubeconfig.Tokens, installation *installation) (*authn, error) {
	config := &up.generic.Authentication
	certificates, err := clientcertificates.New(tenancy.set.LogicalClusters, &served.registries, clock.RealClock{})
	if err != nil {
		return nil, fmt.Errorf("certificate authority for client certificates: %w", err)
	}
	if err := config.ApplyClientCert(certificates, up.generic.SecureServing); err != nil {
		return nil, err
	}
	ofTypes := workspaceauth.New(tenancy.set, tenancy.types, config.APIAudiences, opts.Generic.Authentication.ServiceAccounts.Issuers, calls)
	ofTypes.Share(tenancy.references)
	own := authentication.Wrap(config.Authenticator)
	all := union.New(
		bearertoken.New(authenticator.WrapAudienceAgnosticToken(config.APIAudiences, tokens)),
		union.New(own, bearertoken.New(virtual.AtHome(ofTypes))),
	)
	headers := config.RequestHeaderConfig
	proxies := installation.verifyProxies(headers)
	everywhere := installation.authenticate(all, own, headers, proxies, config.APIAudiences, up.generic.Serializer)
	return &authn{
		// Upstream's chain ends with the anonymous user. A refused certificate must not become anonymous.
		authenticator: withRoom(authentication.RememberOriginalUser(union.NewFailOnError(
			installation.forwarded(certificates, headers, proxies), everywhere))),
		reviews:      authentication.Reviews(all),
		certificates: certificates,
	}, nil
}

// withRoom grows the stacks of goroutines that serve requests in their first step that is not upstream's. A watch lasts, and needs less.
func withRoom(first authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest && info.Verb != "watch" {
			stack.Grow()
		}
		return first.AuthenticateRequest(r)
	})
}

// authz authorizes requests.
type authz struct {
	rules *authorization.Rules
	// inCluster authorizes requests in a logical cluster, authorizer also requests for views, mounts and homes.
	inCluster, authorizer authorizer.Authorizer
}

func newAuthz(opts options.Completed, tenancy *tenancy, installation *installation, stale func() error) (*authz, error) {
	rules := authorization.NewRules(tenancy.set)
	o := opts.Authorization
	config := authorization.Config{Stale: stale, Order: o.Order, AlwaysAllowPaths: o.AlwaysAllowPaths, Set: tenancy.set, Rules: rules,
		Exports: tenancy.exports}
	var err error
	if o.WebhookConfigFile != "" {
		if config.Webhook, err = authorization.NewWebhook(o.WebhookConfigFile, o.WebhookVersion, o.WebhookAuthorizedTTL,
			o.WebhookUnauthorizedTTL); err != nil {
			return nil, err
		}
	}
	inCluster, err := authorization.New(config)
	if err != nil {
		return nil, err
	}
	inCluster = installation.authorize(inCluster)
	a := &authz{rules: rules, inCluster: inCluster, authorizer: mount.Authorizer(virtual.Authorizer(inCluster))}
	if opts.Homes.Enabled {
		a.authorizer = home.Authorizer(a.authorizer)
	}
	return a, nil
}
