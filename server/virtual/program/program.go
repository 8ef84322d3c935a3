// Package program runs virtual workspaces in a separate program beside kcp. The program needs only the permissions to
// create reviews in kcp, and to act in the logical clusters of its users.
package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/filters"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/request/drain"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

// Options are the configuration of a program.
type Options struct {
	// Kubeconfig is the file with the URL of kcp and of a logical cluster that reviews tokens. Its user needs the permissions
	// of an administrator of workspaces there, and in the clusters of the views: a member of system:kcp:admin. Views across
	// all clusters require a member of system:masters.
	Kubeconfig     string
	Serving        *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	// ClientCAs have users of their own, beside those of the authority in Authentication.
	ClientCAs []ClientCA
}

// ClientCA is a certificate authority of clients.
type ClientCA struct {
	// File has the certificates of the authority.
	File string
	// User returns the user of a certificate that the authority has issued; false if it identifies none.
	User x509.UserConversion
}

// NewOptions returns options with defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort, serving.ServerCert.CertDirectory, serving.ServerCert.PairName = 6444, "certificates", "virtual-workspaces"
	authn := genericoptions.NewDelegatingAuthenticationOptions()
	authn.SkipInClusterLookup, authn.RemoteKubeConfigFileOptional = true, true // tokens are reviewed by tokenReviewer
	return &Options{Serving: serving.WithLoopback(), Authentication: authn}
}

// AddFlags adds the flags that set the options.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig file for kcp. Its server URL names the logical "+
		"cluster that reviews tokens.")
	o.Serving.AddFlags(flags)
	o.Authentication.ClientCert.AddFlags(flags)
	o.Authentication.RequestHeader.AddFlags(flags)
}

// Program serves virtual workspaces.
type Program struct {
	// Client is the configuration of clients that send each call to the logical cluster in its context, as the user in its
	// context if there is one. kcp records the user but does not authorize the user: the view has authorized its calls.
	Client *rest.Config
	// Authorizer uses kcp to authorize a user in the logical cluster of a context.
	Authorizer authorizer.UnconditionalAuthorizer

	config *genericapiserver.Config
}

// New returns a program that is not running yet.
func New(o *Options) (*Program, error) {
	if errs := append(o.Serving.Validate(), o.Authentication.Validate()...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	reviews, err := outbound.Kubeconfig(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	host, home, ok := strings.Cut(strings.TrimSuffix(reviews.Host, "/"), "/clusters/")
	if !ok || !logicalcluster.ValidPath(home) {
		return nil, fmt.Errorf("--kubeconfig: the URL %s does not end with /clusters/<name>", reviews.Host)
	}
	base := rest.CopyConfig(reviews)
	base.Host, base.QPS = host, -1
	asking, err := kubernetes.NewForConfig(clusterclient.ForContext(base))
	if err != nil {
		return nil, err
	}
	p := &Program{Client: acting(base), Authorizer: reviewer{asking.AuthorizationV1().SubjectAccessReviews()}}
	tokens := tokenReviewer{asking.AuthenticationV1().TokenReviews(), logicalcluster.Name(home)}
	return p, p.configure(o, tokens)
}

func (p *Program) configure(o *Options, tokens tokenReviewer) error {
	p.config = genericapiserver.NewConfig(apiextensionsapiserver.Codecs)
	p.config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	p.config.LongRunningFunc = isLongRunning
	if err := o.Serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if err := o.Serving.ApplyToConfig(p.config); err != nil {
		return err
	}
	if err := o.Authentication.ApplyTo(&p.config.Authentication, p.config.SecureServing, nil); err != nil {
		return err
	}
	byToken := group.NewAuthenticatedGroupAdder(bearertoken.New(withHome(cache.New(tokens, false, o.Authentication.CacheTTL,
		o.Authentication.CacheTTL))))
	byCertificate, err := o.byCertificate(p.config)
	if err != nil {
		return err
	}
	p.config.Authentication.Authenticator = union.NewFailOnError(byToken, byCertificate)
	own := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch a.GetPath() {
		case "/healthz", "/livez", "/readyz":
			return authorizer.DecisionAllow, "", nil
		}
		return p.Authorizer.Authorize(logicalcluster.WithName(ctx, tokens.home), a)
	})
	p.config.Authorization.Authorizer = virtual.Authorizer(own)
	return nil
}

// byCertificate returns what authenticates clients by the certificates of all authorities.
func (o *Options) byCertificate(config *genericapiserver.Config) (authenticator.Request, error) {
	var all []authenticator.Request
	for _, ca := range o.ClientCAs {
		authority, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", ca.File)
		if err != nil {
			return nil, fmt.Errorf("certificate authority of clients: %w", err)
		}
		if err := config.Authentication.ApplyClientCert(authority, config.SecureServing); err != nil {
			return nil, err
		}
		all = append(all, x509.NewDynamic(authority.VerifyOptions, ca.User))
	}
	return union.New(append(all, config.Authentication.Authenticator)...), nil
}

// isLongRunning reports whether a request has no time limit: watches, connections that are upgraded, and subresources that Kubernetes
// streams.
func isLongRunning(r *http.Request, info *request.RequestInfo) bool {
	return streams(r, info) || httpstream.IsUpgradeRequest(r)
}

var streams = filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"),
	sets.NewString("attach", "exec", "log", "portforward", "proxy"))

// Run serves views until ctx ends.
func (p *Program) Run(ctx context.Context, views virtual.Views) error {
	kcp, err := forward(p.Client)
	if err != nil {
		return err
	}
	p.config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		addressed := virtual.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := logicalcluster.From(r.Context()); ok {
				kcp.ServeHTTP(w, r)
				return
			}
			api.ServeHTTP(w, r)
		}))
		bare := genericapiserver.DefaultBuildHandlerChain(addressed, c)
		return drain.WithClose(views.WithView(bare, bare, c.Serializer), ctx.Done())
	}
	server, err := p.config.Complete(nil).New("virtual-workspaces", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}
