// Package workspaceauth accepts, in the workspaces of a type, the tokens of the issuers of the type, which are configured by
// WorkspaceAuthenticationConfigurations in the workspace of the type. The identity of a user is valid only in the workspace
// of the request.
package workspaceauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	certutil "k8s.io/client-go/util/cert"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// most is the number of configurations that are ready at a time. A configuration is prepared when the first token
	// arrives.
	most = 256
	// patience is how long the first token waits for the discovery document of its issuer, and longest limits the authentication of any
	// token.
	patience, longest = 5 * time.Second, 10 * time.Second
	// maxExpressions limits the rules and mappings for the tokens of one issuer.
	maxExpressions = 64
	// maxCost limits the cost of evaluating an expression, in upstream's units: a tenth of the limit of a policy.
	maxCost = celconfig.PerCallLimit / 10
	// maxToken and maxUser limit the bytes of a token, and of the resulting identity.
	maxToken, maxUser = 64 << 10, 64 << 10
)

// Issuers is an authenticator.Token. The cluster of a request must be in its context.
type Issuers struct {
	clusters informers.Lister[*corev1alpha1.LogicalCluster]
	configs  informers.Lister[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]
	types    *workspacetypes.Types
	// references finds configurations of other shards; nil if there are none.
	references *references.References
	audiences  authenticator.Audiences
	disallowed []string
	compiler   func() authenticationcel.Compiler
	calls      *outbound.Calls

	mu    sync.Mutex
	ready map[informers.Key]*ready
}

// ready is a configuration that can authenticate tokens.
type ready struct {
	version string
	tokens  func() []authenticator.Token
	used    time.Time
	stop    context.CancelFunc
}

// New returns the issuers of all types. Accepted tokens are valid for audiences, those of the server. A configuration
// must not use an issuer in disallowed, the issuers of the server itself. Requests to issuers are made by calls.
func New(set *informers.Set, types *workspacetypes.Types, audiences authenticator.Audiences, disallowed []string,
	calls *outbound.Calls) *Issuers {
	i := &Issuers{
		clusters: set.LogicalClusters, configs: set.WorkspaceAuthenticationConfigurations, types: types,
		audiences: audiences, disallowed: disallowed, calls: calls,
		compiler: sync.OnceValue(newCompiler),
		ready:    map[informers.Key]*ready{},
	}
	set.WorkspaceAuthenticationConfigurations.AddHandlerForAll(func(old, _ runtime.Object) {
		if key, err := informers.KeyOf(old); old != nil && err == nil {
			i.forget(key)
		}
	})
	return i
}

// Share makes the issuers find configurations of other shards. It must be called before the first request.
func (i *Issuers) Share(r *references.References) { i.references = r }

// newCompiler returns the compiler of expressions. Evaluation stops at maxCost, or when its context ends.
func newCompiler() authenticationcel.Compiler {
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		ProgramOptions: []cel.ProgramOption{cel.CostLimit(maxCost), cel.CostTracking(&library.CostEstimator{}),
			cel.InterruptCheckFrequency(celconfig.CheckFrequency)},
	})
	if err != nil {
		panic(err) // the options are constant
	}
	return boundedCompiler{authenticationcel.NewCompiler(env)}
}

func (i *Issuers) forget(key informers.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.ready[key]; r != nil {
		r.stop()
		delete(i.ready, key)
	}
}

// AuthenticateToken implements authenticator.Token.
func (i *Issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, false, nil // an issuer of one cluster cannot authenticate for requests across all clusters
	}
	lc, err := i.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil, false, nil
	}
	of, ok, err := i.types.Current(ctx).Resolve(lc)
	if err != nil {
		authorization.Undecide(ctx, err)
		return nil, false, err
	}
	if !ok {
		return nil, false, nil
	}
	if len(of.Spec.AuthenticationConfigurations) == 0 {
		return nil, false, nil
	}
	if len(token) > maxToken {
		return nil, false, fmt.Errorf("the token has %d bytes; at most %d are allowed for issuers of workspaces", len(token), maxToken)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	ctx, span := spans.Start(ctx, "Authenticate with the issuers of the workspace type")
	defer span.End(nil)
	var refused []error
	for _, reference := range of.Spec.AuthenticationConfigurations {
		config, err := i.config(ctx, of.Cluster, reference.Name)
		if err != nil {
			authorization.Undecide(ctx, err)
			refused = append(refused, err)
		}
		if config == nil {
			continue // it may be created later
		}
		for _, tokens := range i.authenticators(config) {
			response, ok, err := tokens.AuthenticateToken(ctx, token)
			if err != nil {
				refused = append(refused, errors.New(shortened(err)))
			}
			if ok {
				authorization.Undecide(ctx, nil)
				return confine(response, cluster)
			}
		}
	}
	return nil, false, utilerrors.NewAggregate(refused)
}

// config returns a configuration in the cluster of a type, which another shard can hold, and nil if it does not exist. An error is
// retriable.
func (i *Issuers) config(ctx context.Context, cluster logicalcluster.Name,
	name string) (*tenancyv1alpha1.WorkspaceAuthenticationConfiguration, error) {
	get := func() (*tenancyv1alpha1.WorkspaceAuthenticationConfiguration, error) {
		return i.configs.Get(cluster, "", name)
	}
	if i.references == nil {
		found, _ := get()
		return found, nil
	}
	return references.Find(ctx, i.references, cluster, tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"), name, get)
}

// confine limits a user to one cluster, and removes attributes that only the system may set.
func confine(response *authenticator.Response, cluster logicalcluster.Name) (*authenticator.Response, bool, error) {
	u := response.User
	if authorization.IsReserved(u.GetName()) {
		return nil, false, fmt.Errorf("user names that begin with \"system:\" or %q are reserved for the server; an issuer of a "+
			"workspace must not use them", authorization.BindingPrefix)
	}
	confined := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(),
		Extra: map[string][]string{logicalcluster.UserExtraKey: {string(cluster)}}}
	for _, group := range u.GetGroups() {
		if !authorization.IsReserved(group) {
			confined.Groups = append(confined.Groups, group)
		}
	}
	confined.Groups = append(confined.Groups, user.AllAuthenticated)
	for key, values := range u.GetExtra() {
		if !strings.Contains(key, "kcp.io") && key != authorization.FormerClusterNameKey {
			confined.Extra[key] = values
		}
	}
	if size := sizeOf(confined); size > maxUser {
		return nil, false, fmt.Errorf(
			"the name, groups and extra information of the user have %d bytes; at most %d are allowed for issuers of workspaces",
			size,
			maxUser,
		)
	}
	return &authenticator.Response{User: authorization.InClusterOnly(confined, cluster), Audiences: response.Audiences}, true, nil
}

// sizeOf returns how many bytes describe a user.
func sizeOf(u user.Info) int {
	size := len(u.GetName()) + len(u.GetUID())
	for _, group := range u.GetGroups() {
		size += 1 + len(group)
	}
	for key, values := range u.GetExtra() {
		size += len(key)
		for _, value := range values {
			size += 1 + len(value)
		}
	}
	return size
}

// authenticators returns the authenticators of a configuration; none if the configuration is unusable.
func (i *Issuers) authenticators(config *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) []authenticator.Token {
	key := informers.Key{Cluster: logicalcluster.Of(config), Name: config.Name}
	i.mu.Lock()
	r := i.ready[key]
	if r == nil || r.version != config.ResourceVersion {
		if r != nil {
			r.stop()
		}
		r = i.prepare(config)
		i.ready[key] = r
		i.makeRoom()
	}
	r.used = time.Now()
	i.mu.Unlock()
	return r.tokens()
}

// makeRoom drops a configuration if there are too many: the least recently used one of the workspace with the most configurations.
func (i *Issuers) makeRoom() {
	if len(i.ready) <= most {
		return
	}
	of := map[logicalcluster.Name]int{}
	for key := range i.ready {
		of[key.Cluster]++
	}
	var oldest informers.Key
	for key, r := range i.ready {
		more, o := of[key.Cluster]-of[oldest.Cluster], i.ready[oldest]
		if more > 0 || (more == 0 && r.used.Before(o.used)) {
			oldest = key
		}
	}
	i.ready[oldest].stop()
	delete(i.ready, oldest)
}

// prepare makes a configuration ready when its authenticators are requested: it compiles expressions, which must not block other
// configurations. Invalid issuers are omitted, and the others keep working.
func (i *Issuers) prepare(config *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) *ready {
	ctx, stop := context.WithCancel(context.Background())
	return &ready{version: config.ResourceVersion, stop: stop, tokens: sync.OnceValue(func() []authenticator.Token {
		var all []authenticator.Token
		for _, jwt := range config.Spec.JWT {
			tokens, err := i.newAuthenticator(ctx, jwt)
			if err != nil {
				decisionlog.ForFailure(ctx, logicalcluster.Of(config)).Info("Ignoring an issuer of a workspace type", decisionlog.Cluster,
					logicalcluster.Of(config), decisionlog.Name, config.Name, decisionlog.Reason, shortened(err))
				continue
			}
			all = append(all, tokens)
		}
		return all
	})}
}

func (i *Issuers) newAuthenticator(ctx context.Context, jwt tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
	if n := len(jwt.ClaimValidationRules) + len(jwt.UserValidationRules) + len(jwt.ClaimMappings.Extra); n > maxExpressions {
		return nil, fmt.Errorf("issuer %s has %d claimValidationRules, userValidationRules and claimMappings.extra in total; at "+
			"most %d are allowed",
			jwt.Issuer.URL, n, maxExpressions)
	}
	// The fields are those of upstream's versioned type.
	content, err := json.Marshal(jwt)
	if err != nil {
		return nil, err
	}
	versioned, internal := &apiserverv1.JWTAuthenticator{}, apiserver.JWTAuthenticator{}
	if err := json.Unmarshal(content, versioned); err != nil {
		return nil, err
	}
	if err := apiserverv1.Convert_v1_JWTAuthenticator_To_apiserver_JWTAuthenticator(versioned, &internal, nil); err != nil {
		return nil, err
	}
	var roots *x509.CertPool // nil means those of the system
	if ca := internal.Issuer.CertificateAuthority; ca != "" {
		if roots, err = certutil.NewPoolFromBytes([]byte(ca)); err != nil {
			return nil, err
		}
	}
	caller := func(limits outbound.Limits) http.RoundTripper {
		return i.calls.RoundTripper(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, limits)
	}
	published := newKeys(ctx, internal.Issuer.URL, internal.Issuer.DiscoveryURL, caller)
	if internal.Issuer.DiscoveryURL != "" {
		if _, errs := validation.CompileAndValidateJWTAuthenticator(i.compiler(), internal, i.disallowed); len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
		internal.Issuer.DiscoveryURL = "" // upstream accepts either a URL or keys
	}
	checked, err := oidc.New(ctx, oidc.Options{
		JWTAuthenticator: internal, Compiler: i.compiler(), SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		DisallowedIssuers: i.disallowed,
		KeySet:            published, Client: &http.Client{Transport: undistributed{}},
	})
	if err != nil {
		return nil, err
	}
	return authenticator.WrapAudienceAgnosticToken(i.audiences, checked), nil
}

// undistributed refuses to fetch distributed claims. For each issuer in them, upstream would start a goroutine that never ends.
type undistributed struct{}

// RoundTrip implements http.RoundTripper.
func (undistributed) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("distributed claims are not supported: the token itself must have the claim")
}
