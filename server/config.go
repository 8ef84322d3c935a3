package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"

	kubescheme "k8s.io/client-go/kubernetes/scheme"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	kcpadmission "github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/internal/apis/builtin"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/apis/openapi"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/auth/workspaceauth"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/controllers/garbagecollector"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/internal/process/health"
	"github.com/kcplane/kcp/server/internal/process/metrics"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/request/bodylimit"
	"github.com/kcplane/kcp/server/internal/request/defaultcontent"
	"github.com/kcplane/kcp/server/internal/request/drain"
	"github.com/kcplane/kcp/server/internal/request/freshness"
	"github.com/kcplane/kcp/server/internal/request/home"
	"github.com/kcplane/kcp/server/internal/request/inactive"
	"github.com/kcplane/kcp/server/internal/request/inflight"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/internal/request/path"
	"github.com/kcplane/kcp/server/internal/request/slowclient"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/internal/views/apiexport"
	"github.com/kcplane/kcp/server/internal/views/apiresourceschema"
	"github.com/kcplane/kcp/server/internal/views/lifecycle"
	"github.com/kcplane/kcp/server/internal/views/replication"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// config is everything that a server is made of.
type config struct {
	opts    options.Completed
	backend *storage.Backend
	// calls are those to hosts that tenants name.
	calls *outbound.Calls
	// fresh is how current the informers are.
	fresh *freshness.State

	generic      *genericapiserver.Config
	controlPlane *controlplaneapiserver.Config
	// definitionOptions place types outside of the built-in scheme: definitions and custom resources.
	definitionOptions generic.RESTOptionsGetter

	// loopback reaches the bare server as a privileged user; kube, dynamic and metadata the cluster of each call's context.
	loopback *rest.Config
	kube     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// definitions reaches the CustomResourceDefinitions of the cluster of each call's context.
	definitions apiextensionsclient.ApiextensionsV1Interface

	informers *informers.Factory
	set       *informers.Set
	rules     *authorization.Rules
	tree      *pathindex.Tree
	types     *workspacetypes.Types
	exports   *exports.Exports
	cached    *cachedresources.Resources
	defaults  exports.Defaults
	// systemDefinitions are those of the resources that the server itself serves.
	systemDefinitions []*apiextensionsv1.CustomResourceDefinition
	// documents describe what the views of exports offer; they are made of the two behind them.
	documents     http.Handler
	viewDiscovery *discovery.Discovery
	viewOpenAPI   *openapi.OpenAPI
	// replicated are the views of slices, shown describes what they offer.
	replicated replication.Config
	shown      http.Handler
	stored     map[string]*storage.Typed // by resource: what the server writes without requests
	scheduler  *scheduling.Scheduler
	limits     *objectlimit.Limits
	inflight   *inflight.Limits
	entry      *defaultcontent.Entry
	views      virtual.Views
	// mounts passes requests on to mountHosts.
	mounts     *mount.Proxy
	mountHosts *mount.Hosts
	reviews    authenticator.Request
	// clientCertificates signs the certificates of logical clusters, and authenticates by them.
	clientCertificates *clientcertificates.Authority
	// secretIssuer signs the tokens of Secrets.
	secretIssuer serviceaccount.TokenGenerator

	custom        *customresources.Handler
	discovery     *discovery.Discovery
	openapi       *openapi.OpenAPI
	builtin       sets.Set[schema.GroupResource]
	registries    builtin.Registries
	staticOpenAPI atomic.Pointer[spec.Swagger]
	// builtinTypes merges objects of built-in types; it is made with the first request that needs it.
	builtinTypes func() (managedfields.TypeConverter, error)
	// builtinSchemas are the types of built-in objects; they are collected when the first are asked for.
	builtinSchemas func() resolver.SchemaResolver
	// collector is the garbage collector while the controllers run in this process.
	collector atomic.Pointer[garbagecollector.Collector]

	// unreadable are stored objects that an Event is to tell of.
	unreadable unreadableObjects
	// health has the reasons why checks fail.
	health health.Checks

	// stopping is closed when the server begins to stop.
	stopping <-chan struct{}

	background sync.WaitGroup
}

func newConfig(opts options.Completed, backend *storage.Backend, tokens *kubeconfig.Tokens) (*config, error) {
	metrics.WithoutNames() // before the flags that may name some
	networks, err := outbound.NewNetworks(opts.TenantWebhookNetworks)
	if err != nil {
		return nil, err
	}
	c := &config{opts: opts, backend: backend, calls: outbound.NewCalls(networks), unreadable: newUnreadableObjects(), fresh: &freshness.State{}}
	if !opts.Embedded || opts.EmbeddedEtcd.ClientPort != 0 { // otherwise no other server writes
		c.fresh.Limit = opts.Authorization.MaxStaleness
	}
	backend.OnUnreadable(c.unreadable.add)
	if err := backend.RegisterMetrics(legacyregistry.Register); err != nil {
		return nil, err
	}
	c.registerStorageMetrics()
	c.builtinTypes = sync.OnceValues(c.newBuiltinTypes)
	c.builtinSchemas = sync.OnceValue(newBuiltinSchemas)
	opts.Generic.Authentication.ServiceAccounts.OptionalTokenGetter = func(kubeinformers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
		return authentication.Getter{Objects: &c.registries, Label: c.labelSecret}
	}
	c.limits = objectlimit.New(objectlimit.Config{
		Standard: opts.TotalObjectLimit, Interval: opts.ObjectCountInterval, Count: c.countObjects, Clock: clock.RealClock{},
	})
	backend.SetLimit(c.limits)
	if err := backend.Register(legacyregistry.Register); err != nil {
		return nil, err
	}
	if err := c.buildGeneric(); err != nil {
		return nil, err
	}
	if err := c.buildClients(); err != nil {
		return nil, err
	}
	if err := c.buildInflight(); err != nil {
		return nil, err
	}
	if err := c.buildMounts(); err != nil {
		return nil, err
	}
	if err := c.buildAuthentication(tokens); err != nil {
		return nil, err
	}
	if err := c.buildAuthorization(); err != nil {
		return nil, err
	}
	c.generic.AdmissionControl, err = kcpadmission.New(kcpadmission.Config{
		Set: c.set, Kube: c.kube, Dynamic: c.dynamic, Authorizer: c.generic.Authorization.Authorizer, Tree: c.tree, Types: c.types, Exports: c.exports, Limits: c.limits,
		Payer: inflight.Payer(c.set.LogicalClusters), MaxLargeObjects: int(c.opts.MaxLargeObjects),
		ClientFor: func(cluster logicalcluster.Name) (kubernetes.Interface, error) {
			return kubernetes.NewForConfig(clusterclient.ForCluster(c.loopback, logicalcluster.Cluster{Name: cluster}))
		},
		RESTMapper:    c.restMapper,
		TypeConverter: c.typeConverter,
		OfServer: func(resource schema.GroupResource) bool {
			_, exported := c.exports.System()[resource]
			return c.builtin.Has(resource) || (c.custom.IsSystem(resource) && !exported)
		},
		WebhookAuthentication: c.calls.Webhooks(kcpadmission.WebhookLimits, c.generic.TracerProvider),
	})
	if err != nil {
		return nil, err
	}
	c.generic.BuildHandlerChainFunc = c.chain
	c.generic.AddReadyzChecks(
		healthz.NamedCheck("etcd", func(r *http.Request) error { return backend.Ping(r.Context()) }),
		healthz.NamedCheck("etcd-space", func(*http.Request) error { return backend.CheckRoom() }),
		healthz.NamedCheck("freshness", func(*http.Request) error { return c.fresh.Stale() }),
	)
	for _, checks := range [][]healthz.HealthChecker{c.generic.HealthzChecks, c.generic.LivezChecks, c.generic.ReadyzChecks} {
		c.health.Remember(checks)
	}
	return c, nil
}

// labelSecret sets a label of a Secret in the cluster of ctx.
func (c *config) labelSecret(ctx context.Context, secret *corev1.Secret, label, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": secret.UID, "labels": map[string]string{label: value}}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// buildGeneric takes upstream's configuration and puts the cluster-aware storage below it.
func (c *config) buildGeneric() error {
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme}
	g, sharedInformers, storageFactory, err := controlplaneapiserver.BuildGenericConfig(c.opts.Generic, schemes, builtin.Resources(), generatedopenapi.GetOpenAPIDefinitions, nil)
	if err != nil {
		return err
	}
	g.EffectiveVersion = linkedVersion{g.EffectiveVersion}
	g.RequestInfoResolver = customresources.RequestInfo{RequestInfoResolver: genericapiserver.NewRequestInfoResolver(g)}
	c.generic = g
	g.SecureServing.Listener = slowclient.Listener(g.SecureServing.Listener, c.opts.StalledClientTimeout)
	otel.SetTracerProvider(g.TracerProvider) // for the client of etcd, which is older
	etcd := *c.opts.Generic.Etcd
	etcd.StorageConfig.Codec = apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1.SchemeGroupVersion, schema.GroupKind{Group: apiextensionsv1.GroupName})
	c.definitionOptions = etcd.CreateRESTOptionsGetter(&serveroptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, g.ResourceTransformers)
	g.RESTOptionsGetter = c.backend.BuiltIn(g.RESTOptionsGetter)
	c.controlPlane, _, err = controlplaneapiserver.CreateConfig(c.opts.Generic, g, sharedInformers, nil, storageFactory, webhook.NewDefaultServiceResolver(), nil)
	if err != nil {
		return err
	}
	c.controlPlane.ServiceAccountIssuer = authentication.Generator{TokenGenerator: c.controlPlane.ServiceAccountIssuer}
	key, err := keyutil.PrivateKeyFromFile(c.opts.SecretTokenKeyFile)
	if err != nil {
		return fmt.Errorf("--service-account-private-key-file: %s: %w", c.opts.SecretTokenKeyFile, err)
	}
	// Tokens in Secrets are issued under the name that Kubernetes gives to their issuer.
	legacy, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("--service-account-private-key-file: %s: %w", c.opts.SecretTokenKeyFile, err)
	}
	c.secretIssuer = authentication.Generator{TokenGenerator: legacy}
	etcdmetrics.SetStorageMonitorGetter(c.backend.Monitors)
	// These write to one cluster, on behalf of components that do not exist here.
	g.DisabledPostStartHooks.Insert("start-legacy-token-tracking-controller", "start-cluster-authentication-info-controller")
	return nil
}

// rootCA returns the certificates that service accounts verify the server with.
func (c *config) rootCA() []byte {
	if len(c.opts.RootCA) > 0 {
		return c.opts.RootCA
	}
	ca, _ := c.generic.SecureServing.Cert.CurrentCertKeyContent()
	return ca
}

// buildInflight takes the limits of requests in flight from upstream, whose own let one tenant have all of them.
func (c *config) buildInflight() error {
	g := c.generic
	c.inflight = inflight.New(inflight.Config{
		Requests: c.opts.MaxRequests, Watches: c.opts.MaxWatches, Reads: g.MaxRequestsInFlight, Writes: g.MaxMutatingRequestsInFlight, AllWatches: c.opts.MaxAllWatches,
		Bytes: c.opts.RequestMemory, MaxBody: g.MaxRequestBodyBytes,
		LongRunning: g.LongRunningFunc, Serializer: g.Serializer, Clusters: c.set.LogicalClusters,
	})
	g.MaxRequestsInFlight, g.MaxMutatingRequestsInFlight = 0, 0
	return c.inflight.Register(legacyregistry.Register, legacyregistry.CustomRegister)
}

func (c *config) buildClients() error {
	c.loopback = rest.CopyConfig(c.generic.LoopbackClientConfig)
	c.loopback.QPS = -1
	var err error
	if c.kube, err = kubernetes.NewForConfig(clusterclient.ForContext(c.loopback)); err != nil {
		return err
	}
	if c.metadata, err = metadata.NewForConfig(clusterclient.ForContext(c.loopback)); err != nil {
		return err
	}
	if c.definitions, err = apiextensionsclient.NewForConfig(clusterclient.ForContext(c.loopback)); err != nil {
		return err
	}
	plain := rest.CopyConfig(c.loopback)
	plain.ContentType = runtime.ContentTypeJSON
	if c.dynamic, err = dynamic.NewForConfig(clusterclient.ForContext(plain)); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, apiextensionsv1.AddToScheme, corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, cachev1alpha1.AddToScheme, topologyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	c.informers = informers.NewFactory(c.loopback, scheme)
	c.informers.Acknowledge(func(resource schema.GroupResource) informers.Acknowledged { return c.backend.Acknowledged(resource) })
	if err := c.buildWorkspaces(scheme); err != nil {
		return err
	}
	c.limits.Follow(c.set)
	if err := c.limits.Register(legacyregistry.CustomRegister, c.opts.ShardName); err != nil {
		return err
	}
	return metrics.CountLogicalClusters(legacyregistry.Register, c.set.LogicalClusters.Informer, c.opts.ShardName)
}

func (c *config) buildAuthentication(tokens *kubeconfig.Tokens) (err error) {
	authn := &c.generic.Authentication
	if c.clientCertificates, err = clientcertificates.New(c.set.LogicalClusters, &c.registries, clock.RealClock{}); err != nil {
		return fmt.Errorf("authority of client certificates: %w", err)
	}
	if err := authn.ApplyClientCert(c.clientCertificates, c.generic.SecureServing); err != nil {
		return err
	}
	upstream := authentication.Wrap(authn.Authenticator)
	ofTypes := workspaceauth.New(c.set, c.types, authn.APIAudiences, c.opts.Generic.Authentication.ServiceAccounts.Issuers, c.calls)
	upstream = union.New(upstream, bearertoken.New(virtual.AtHome(ofTypes)))
	all := union.New(bearertoken.New(authenticator.WrapAudienceAgnosticToken(authn.APIAudiences, tokens)), upstream)
	c.reviews = authentication.Reviews(all)
	// Upstream's chain ends with the anonymous user, which a certificate that is refused must not become.
	authn.Authenticator = authentication.RememberOriginalUser(union.NewFailOnError(c.clientCertificates, all))
	return nil
}

func (c *config) buildAuthorization() error {
	c.rules = authorization.NewRules(c.set)
	a := c.opts.Authorization
	config := authorization.Config{Stale: c.fresh.Stale, Order: a.Order, AlwaysAllowPaths: a.AlwaysAllowPaths, Set: c.set, Rules: c.rules, Exports: c.exports}
	var err error
	if a.WebhookConfigFile != "" {
		if config.Webhook, err = authorization.NewWebhook(a.WebhookConfigFile, a.WebhookVersion, a.WebhookAuthorizedTTL, a.WebhookUnauthorizedTTL); err != nil {
			return err
		}
	}
	c.generic.Authorization.Authorizer, err = authorization.New(config)
	if err != nil {
		return err
	}
	if c.views, err = lifecycle.Views(lifecycle.Config{Set: c.set, Authorizer: c.generic.Authorization.Authorizer}); err != nil {
		return err
	}
	c.views[apiexport.Name] = apiexport.Config{
		Exports: c.exports, Authorizer: c.generic.Authorization.Authorizer, Rules: c.rules,
		Offers: func(view logicalcluster.Name, resource schema.GroupResource) bool {
			return c.custom.Serves(view, resource)
		},
		Documents: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.documents.ServeHTTP(w, r) }),
	}.Find
	c.replicated = replication.Config{
		Cached: c.cached, Exports: c.exports, Authorizer: c.generic.Authorization.Authorizer,
		Offers:    func(view logicalcluster.Name) []customresources.Installed { return c.custom.List(view) },
		Documents: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.shown.ServeHTTP(w, r) }),
	}
	c.views[replication.Name] = c.replicated.Find
	c.views[apiresourceschema.Name], err = apiresourceschema.Config{
		Stored: c.stored["apibindings"], Schemas: c.set.APIResourceSchemas, Kept: c.stored["apiresourceschemas"], Authorizer: c.generic.Authorization.Authorizer,
	}.Find()
	if err != nil {
		return err
	}
	c.generic.Authorization.Authorizer = mount.Authorizer(virtual.Authorizer(c.generic.Authorization.Authorizer))
	if c.opts.Homes.Enabled {
		c.generic.Authorization.Authorizer = home.Authorizer(c.generic.Authorization.Authorizer)
	}
	c.generic.RuleResolver = authorization.Resolver{Rules: c.rules}
	return nil
}

// chain is the way of a request, innermost first.
func (c *config) chain(api http.Handler, g *genericapiserver.Config) http.Handler {
	api = path.WithoutServer(c.health.WithReasons(api, g.Authorization.Authorizer), g.Serializer)
	h := c.withCurrent(c.discovery.WithDiscovery(c.openapi.WithOpenAPI(api)))
	c.documents = c.withCurrent(c.viewDiscovery.WithDiscovery(c.viewOpenAPI.WithOpenAPI(api)))
	h = c.withCustomResources(h)
	h = c.entry.WithContent(h, g.Serializer)
	h = inactive.NewWatches(c.set.LogicalClusters).WithEnd(h)
	h = bodylimit.WithSelectors(bodylimit.WithText(h))
	h = c.mounts.WithMounts(virtual.Serve(inactive.WithRefusal(h, c.set.LogicalClusters, c.inService, g.Serializer)))
	if c.opts.Homes.Enabled {
		homes := home.Homes{Clusters: c.stored["logicalclusters"], Scheduler: c.scheduler, Authorizer: g.Authorization.Authorizer, Serializer: g.Serializer}
		h = homes.WithHome(h)
	}
	h = authorization.WithDeepReview(h)
	h = authentication.WithImpersonationScope(h)
	h = c.inflight.WithLimits(h)
	h = genericapiserver.DefaultBuildHandlerChain(h, g)
	h = authentication.WithOriginalUser(h)
	if g.AuditBackend != nil {
		h = path.WithAuditAnnotations(h, c.tree.Path)
	} else {
		h = path.WithoutAudit(h)
	}
	bare := h
	own := func(r *http.Request) bool { return authorization.IsServer(r.Context()) }
	h = inactive.WithRefusal(h, c.set.LogicalClusters, own, g.Serializer)
	places := pathindex.NewStored(c.tree, c.stored["logicalclusters"], c.stored["workspaces"], own)
	h = path.WithCluster(h, g.Serializer, places)
	bare = virtual.WithKnown(bare, func(r *http.Request, cluster logicalcluster.Name) error {
		_, _, err := places.Find(r, string(cluster)) // authorization answers for a cluster that does not exist
		return err
	}, g.Serializer)
	h = c.views.WithView(h, bare, g.Serializer)
	h = c.fresh.WithRefusal(h, own, g.Serializer)
	h = authentication.WithServer(h, c.loopback.BearerToken)
	h = authentication.WithInClusterServiceAccount(h)
	h = drain.WithClose(h, c.stopping)
	return slowclient.New(c.opts.StalledClientTimeout, clock.RealClock{}).WithTimeout(h)
}

// inService tells whether a request, whose cluster is known to be in service unless a view serves it, goes on in any case: what is
// being deleted is still ended by those who see it in a view.
func (c *config) inService(r *http.Request) bool {
	if !virtual.InView(r.Context()) {
		return true
	}
	name, err := logicalcluster.NameFrom(r.Context())
	if err != nil {
		return true
	}
	lc, err := c.set.LogicalClusters.Get(name, "", corev1alpha1.LogicalClusterName)
	return err == nil && lc.DeletionTimestamp != nil
}

// countObjects returns how many objects the cluster of ctx stores.
func (c *config) countObjects(ctx context.Context) (int64, error) {
	served, err := c.discovery.Resources(ctx)
	if err != nil {
		return 0, err
	}
	var stored []schema.GroupResource
	for _, r := range served {
		if r.Verbs.Has("list") && objectlimit.Counted(r.GroupResource()) {
			stored = append(stored, r.GroupResource())
		}
	}
	return c.backend.Count(ctx, stored)
}

// restMapper returns what the cluster of a context serves.
func (c *config) restMapper(ctx context.Context) (meta.RESTMapper, error) {
	return c.discovery.RESTMapper(ctx)
}

// withCurrent makes documents tell of what is bound already, and of nothing that is not bound any more.
func (c *config) withCurrent(documents http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.custom.CatchUp(r)
		documents.ServeHTTP(w, r)
	})
}

// withCustomResources serves resources that are not built in.
func (c *config) withCustomResources(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.isCustom(r.Context()) {
			c.custom.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isCustom tells whether a request is for a custom resource.
func (c *config) isCustom(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest &&
		(customresources.InView(ctx) || !c.builtin.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}))
}

func (c *config) newServer() (*genericapiserver.GenericAPIServer, error) {
	// The chain is built with the server, before it knows what it serves.
	c.discovery, c.openapi = &discovery.Discovery{}, &openapi.OpenAPI{}
	c.viewDiscovery, c.viewOpenAPI = &discovery.Discovery{}, &openapi.OpenAPI{}
	completed := c.controlPlane.Complete()
	s, err := completed.New("kcp", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	// Upstream answers with the list of all paths.
	s.GenericAPIServer.Handler.NonGoRestfulMux.NotFoundHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", r.URL.Path+" is not a path of this server", 0, true)
		responsewriters.ErrorNegotiated(status, c.generic.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
	}))
	client, err := kubernetes.NewForConfig(clusterclient.ForCluster(c.loopback, rootCluster))
	if err != nil {
		return nil, err
	}
	if err := s.InstallAPIs(builtin.Providers(completed, c.rules, c.reviews, client.Discovery(), &c.registries)...); err != nil {
		return nil, fmt.Errorf("installing the built-in types: %w", err)
	}
	return s.GenericAPIServer, c.installDefinitions(s.GenericAPIServer)
}

// installDefinitions serves CustomResourceDefinitions and what they define.
func (c *config) installDefinitions(s *genericapiserver.GenericAPIServer) error {
	reserved := sets.New[schema.GroupResource]()
	storages, definitions, err := customresources.DefinitionStorage(c.backend.BuiltIn(c.definitionOptions), reserved, customresources.DerivedDefinitions{
		On: c.derivesDefinitions, Handler: func() *customresources.Handler { return c.custom },
	})
	if err != nil {
		return err
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, apiextensionsapiserver.Scheme, metav1.ParameterCodec, apiextensionsapiserver.Codecs)
	info.VersionedResourcesStorageMap["v1"] = storages
	if err := s.InstallAPIGroup(&info); err != nil {
		return fmt.Errorf("installing %s: %w", apiextensions.GroupName, err)
	}
	live := func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		obj, err := definitions.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		return crd, apiextensionsapiserver.Scheme.Convert(obj, crd, nil)
	}
	elsewhere, err := c.newEndpoints()
	if err != nil {
		return err
	}
	c.custom, err = customresources.New(customresources.Config{
		Definitions: c.set.CustomResourceDefinitions, Live: live, Options: c.scheduler.Options(c.backend.Custom(c.definitionOptions)),
		Exports: c.set.APIExports, Schemas: c.set.APIResourceSchemas, Conversions: c.set.APIConversions, Bindings: c.set.APIBindings,
		System: c.exports.System(), Cached: c.cached, Endpoints: elsewhere, LiveBindings: c.exports.StoredBindingsIn, Versions: c.backend.Versions, AllOptions: c.backend.All(c.definitionOptions),
		BoundOptions: func(identity string) generic.RESTOptionsGetter {
			return c.backend.Bound(c.definitionOptions, identity)
		},
		Admission: c.generic.AdmissionControl, Authorizer: c.generic.Authorization.Authorizer,
		ServiceResolver:   outbound.NoServices{},
		AuthResolver:      c.calls.Webhooks(customresources.ConversionLimits, c.generic.TracerProvider),
		StaticModels:      info.StaticOpenAPISpec,
		RequestTimeout:    c.generic.RequestTimeout,
		MinRequestTimeout: time.Duration(c.generic.MinRequestTimeout) * time.Second, MaxRequestBodyBytes: c.generic.MaxRequestBodyBytes,
	})
	if err != nil {
		return err
	}
	c.custom.OnChange(c.resourcesChanged)
	c.backend.Identify(c.custom.Identity)
	d, err := discovery.New(s.AggregatedLegacyDiscoveryGroupManager, s.AggregatedDiscoveryGroupManager, c.custom)
	if err != nil {
		return err
	}
	*c.discovery = *d
	c.builtin = d.Builtin()
	reserved.Insert(c.builtin.UnsortedList()...)
	own, err := customresources.SystemDefinitions()
	if err != nil {
		return err
	}
	reserved.Insert(customresources.SystemResources(own)...)
	*c.openapi = *openapi.New(c.custom, c.staticOpenAPI.Load)
	c.shown = discovery.Of(c.replicated.Shown).WithDiscovery(openapi.Of(c.replicated.Shown).WithOpenAPI(openapi.NothingBuiltIn))
	inViews := apiexport.Shown(c.exports, c.custom.List)
	views := d.ForViews(apiexport.Claimed(c.exports), inViews)
	*c.viewDiscovery, *c.viewOpenAPI = *views, *openapi.ForViews(inViews, views.BuiltinVersions)
	return nil
}

// derivesDefinitions returns whether a logical cluster shows definitions of what is bound there.
func (c *config) derivesDefinitions(cluster logicalcluster.Name) bool {
	lc, err := c.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	return err == nil && c.types.DerivesDefinitions(lc)
}

// typeConverter returns what merges objects of a kind in a cluster.
func (c *config) typeConverter(cluster logicalcluster.Name, gvk schema.GroupVersionKind) managedfields.TypeConverter {
	if legacyscheme.Scheme.Recognizes(gvk) {
		if converter, err := c.builtinTypes(); err == nil {
			return converter
		}
	} else if converter, ok := c.openapi.TypeConverter(cluster, gvk); ok {
		return converter
	}
	return managedfields.NewDeducedTypeConverter()
}

func (c *config) newBuiltinTypes() (managedfields.TypeConverter, error) {
	models := map[string]*spec.Schema{}
	for name, model := range c.staticOpenAPI.Load().Definitions {
		models[name] = &model
	}
	return managedfields.NewTypeConverter(models, false)
}
