package server

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/auth/workspaceauth"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/request/home"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// authn is who a request comes from.
type authn struct {
	authenticator authenticator.Request
	// reviews authenticates the tokens of TokenReviews.
	reviews authenticator.Request
	// certificates signs the client certificates of logical clusters, and authenticates by them.
	certificates *clientcertificates.Authority
}

// newAuthn puts our authenticators around upstream's, and the authority of client certificates into what the server asks clients for.
func newAuthn(opts options.Completed, up *upstream, tenancy *tenancy, served *served, calls *outbound.Calls,
	tokens *kubeconfig.Tokens) (*authn, error) {
	config := &up.generic.Authentication
	certificates, err := clientcertificates.New(tenancy.set.LogicalClusters, &served.registries, clock.RealClock{})
	if err != nil {
		return nil, fmt.Errorf("certificate authority for client certificates: %w", err)
	}
	if err := config.ApplyClientCert(certificates, up.generic.SecureServing); err != nil {
		return nil, err
	}
	ofTypes := workspaceauth.New(tenancy.set, tenancy.types, config.APIAudiences, opts.Generic.Authentication.ServiceAccounts.Issuers, calls)
	all := union.New(
		bearertoken.New(authenticator.WrapAudienceAgnosticToken(config.APIAudiences, tokens)),
		union.New(authentication.Wrap(config.Authenticator), bearertoken.New(virtual.AtHome(ofTypes))),
	)
	return &authn{
		// Upstream's chain ends with the anonymous user, which a certificate that is refused must not become.
		authenticator: authentication.RememberOriginalUser(union.NewFailOnError(certificates, all)),
		reviews:       authentication.Reviews(all),
		certificates:  certificates,
	}, nil
}

// authz is what a request may do.
type authz struct {
	rules *authorization.Rules
	// inCluster decides for the cluster of a request, authorizer also for views, mounts and homes.
	inCluster, authorizer authorizer.Authorizer
}

func newAuthz(opts options.Completed, tenancy *tenancy, stale func() error) (*authz, error) {
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
	a := &authz{rules: rules, inCluster: inCluster, authorizer: mount.Authorizer(virtual.Authorizer(inCluster))}
	if opts.Homes.Enabled {
		a.authorizer = home.Authorizer(a.authorizer)
	}
	return a, nil
}
