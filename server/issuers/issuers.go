// Package issuers accepts, in the workspaces of a type, the tokens of the issuers that the type names: by
// WorkspaceAuthenticationConfigurations in the workspace of the type. What they say about a user holds in that one workspace.
package issuers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/workspacetypes"
)

const (
	// most configurations are kept ready for tokens at a time. They are made when the first token comes.
	most = 256
	// retry is when a configuration that could not be used is tried again.
	retry = 10 * time.Second
	// patience is how long the first token waits for the keys of its issuer.
	patience, interval = 5 * time.Second, 50 * time.Millisecond
)

// clusterExtra is the extra information of users that says where they are somebody.
const clusterExtra = "authentication.kcp.io/cluster-name"

// Issuers is an authenticator.Token. The cluster of a request must be in its context.
type Issuers struct {
	clusters   informers.Lister[*corev1alpha1.LogicalCluster]
	configs    informers.Lister[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]
	types      *workspacetypes.Types
	audiences  authenticator.Audiences
	disallowed []string
	compiler   func() authenticationcel.Compiler
	dial       utilnet.DialFunc

	mu    sync.Mutex
	ready map[informers.Key]*ready
}

// ready is a configuration that tokens can be checked with.
type ready struct {
	version string
	tokens  []authenticator.Token
	err     error
	made    time.Time
	used    time.Time
	stop    context.CancelFunc
}

// New returns the issuers of all types. Whose tokens they accept is good for audiences, those of the server. Nobody may
// name one of disallowed, which are the issuers of the server itself. They are called by dial.
func New(set *informers.Set, types *workspacetypes.Types, audiences authenticator.Audiences, disallowed []string, dial utilnet.DialFunc) *Issuers {
	i := &Issuers{
		clusters: set.LogicalClusters, configs: set.WorkspaceAuthenticationConfigurations, types: types,
		audiences: audiences, disallowed: disallowed, dial: dial,
		compiler: sync.OnceValue(func() authenticationcel.Compiler {
			return authenticationcel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		}),
		ready: map[informers.Key]*ready{},
	}
	set.WorkspaceAuthenticationConfigurations.AddHandler(func(old, _ runtime.Object) {
		if key, err := informers.KeyOf(old); old != nil && err == nil {
			i.forget(key)
		}
	})
	return i
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
		return nil, false, nil // nobody is anybody in all clusters by what one of them says
	}
	lc, err := i.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil, false, nil
	}
	of, ok := i.types.Of(lc)
	if !ok {
		return nil, false, nil
	}
	var refused []error
	for _, reference := range of.Spec.AuthenticationConfigurations {
		config, err := i.configs.Get(of.Cluster, "", reference.Name)
		if err != nil {
			continue // it may come
		}
		for _, tokens := range i.authenticators(config) {
			response, ok, err := tokens.AuthenticateToken(ctx, token)
			if err != nil {
				refused = append(refused, err)
			}
			if ok {
				return confine(response, cluster)
			}
		}
	}
	return nil, false, utilerrors.NewAggregate(refused)
}

// confine makes a user somebody in one cluster only, without anything that the system alone may give.
func confine(response *authenticator.Response, cluster logicalcluster.Name) (*authenticator.Response, bool, error) {
	u := response.User
	if reserved(u.GetName()) {
		return nil, false, fmt.Errorf("users whose names begin with \"system:\" or %q belong to the server, no issuer of a workspace may name them", authorization.BindingPrefix)
	}
	confined := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Extra: map[string][]string{clusterExtra: {string(cluster)}}}
	for _, group := range u.GetGroups() {
		if !reserved(group) {
			confined.Groups = append(confined.Groups, group)
		}
	}
	confined.Groups = append(confined.Groups, user.AllAuthenticated)
	for key, values := range u.GetExtra() {
		if !strings.Contains(key, "kcp.io") {
			confined.Extra[key] = values
		}
	}
	return &authenticator.Response{User: authorization.InClusterOnly(confined, cluster), Audiences: response.Audiences}, true, nil
}

// reserved tells whether only the server gives a name.
func reserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, authorization.BindingPrefix)
}

// authenticators returns those of a configuration; none if it cannot be used.
func (i *Issuers) authenticators(config *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) []authenticator.Token {
	key := informers.Key{Cluster: logicalcluster.Of(config), Name: config.Name}
	i.mu.Lock()
	defer i.mu.Unlock()
	r := i.ready[key]
	if r == nil || r.version != config.ResourceVersion || (r.err != nil && time.Since(r.made) > retry) {
		if r != nil {
			r.stop()
		}
		r = i.prepare(config)
		i.ready[key] = r
		i.makeRoom()
	}
	r.used = time.Now()
	return r.tokens
}

// makeRoom drops a configuration if there are too many: of the workspace that has the most, the one that was not used for longest.
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

// prepare makes a configuration ready. Its authenticators find the keys of their issuers by themselves.
func (i *Issuers) prepare(config *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) *ready {
	ctx, stop := context.WithCancel(context.Background())
	r := &ready{version: config.ResourceVersion, made: time.Now(), used: time.Now(), stop: stop}
	for _, jwt := range config.Spec.JWT {
		tokens, err := i.newAuthenticator(ctx, jwt)
		if err != nil {
			r.err = err
			continue // the others keep working
		}
		r.tokens = append(r.tokens, tokens)
	}
	return r
}

func (i *Issuers) newAuthenticator(ctx context.Context, jwt tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
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
	internal.Issuer.EgressSelectorType = apiserver.EgressSelectorCluster // which dial is, for upstream
	options := oidc.Options{
		EgressLookup:     func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return i.dial, nil },
		JWTAuthenticator: internal, Compiler: i.compiler(), SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(), DisallowedIssuers: i.disallowed,
	}
	if ca := internal.Issuer.CertificateAuthority; ca != "" {
		if options.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("issuer", []byte(ca)); err != nil {
			return nil, err
		}
	}
	checked, err := oidc.New(ctx, options)
	if err != nil {
		return nil, err
	}
	return authenticator.WrapAudienceAgnosticToken(i.audiences, &patient{AuthenticatorTokenWithHealthCheck: checked, made: time.Now()}), nil
}

// patient waits a little for the keys of its issuer while they are fetched for the first time.
type patient struct {
	oidc.AuthenticatorTokenWithHealthCheck
	made time.Time
}

func (p *patient) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if time.Since(p.made) < patience && p.HealthCheck() != nil {
		_ = wait.PollUntilContextTimeout(ctx, interval, patience-time.Since(p.made), true, func(context.Context) (bool, error) {
			return p.HealthCheck() == nil, nil
		})
	}
	return p.AuthenticatorTokenWithHealthCheck.AuthenticateToken(ctx, token)
}
