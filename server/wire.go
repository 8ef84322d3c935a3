package server

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	kcpadmission "github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/process/metrics"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/request/defaultcontent"
	"github.com/kcplane/kcp/server/internal/request/freshness"
	"github.com/kcplane/kcp/server/internal/request/inflight"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// server contains all parts of a server. Each part is created after the parts that it needs. Only served is referenced before it is filled.
type server struct {
	opts    options.Completed
	backend *storage.Backend
	// calls makes calls to hosts that tenants configure.
	calls *outbound.Calls
	// fresh describes how current the informers are.
	fresh *freshness.State
	// unreadable queues stored objects that need an Event.
	unreadable unreadableObjects

	served       *served
	up           *upstream
	clients      *clients
	tenancy      *tenancy
	installation *installation // nil for a single shard
	authz        *authz
	certificates *clientcertificates.Authority
	mountHosts   *mount.Hosts
	api          *genericapiserver.GenericAPIServer

	background sync.WaitGroup
}

// newServer creates a server from options and storage. The server begins to stop when ctx ends.
func newServer(ctx context.Context, opts options.Completed, backend *storage.Backend, tokens *kubeconfig.Tokens) (*server, error) {
	metrics.WithoutNames(opts.Generic.Metrics)
	networks, err := outbound.NewNetworks(opts.TenantWebhookNetworks)
	if err != nil {
		return nil, err
	}
	s := &server{
		opts: opts, backend: backend, calls: outbound.NewCalls(networks), fresh: &freshness.State{},
		unreadable: newUnreadableObjects(), served: newServed(),
	}
	if !opts.Embedded || opts.EmbeddedEtcd.ClientPort != 0 { // otherwise no other server writes to this etcd
		s.fresh.Limit = opts.Authorization.MaxStaleness
	}
	limits, err := s.prepareStorage()
	if err != nil {
		return nil, err
	}
	if s.up, err = newUpstream(opts, backend, s.served); err != nil {
		return nil, err
	}
	g := s.up.generic
	if s.clients, err = newClients(g.LoopbackClientConfig); err != nil {
		return nil, err
	}
	s.served.kube = s.clients.kube
	if s.tenancy, err = newTenancy(opts, backend, s.up); err != nil {
		return nil, err
	}
	if s.installation, err = newInstallation(ctx, opts, backend, s.up, s.tenancy); err != nil {
		return nil, err
	}
	limits.Follow(s.tenancy.set)
	if err := limits.Register(legacyregistry.CustomRegister, opts.ShardName); err != nil {
		return nil, err
	}
	if err := metrics.CountLogicalClusters(legacyregistry.Register, s.tenancy.set.LogicalClusters.Informer, opts.ShardName); err != nil {
		return nil, err
	}
	authn, err := newAuthn(opts, s.up, s.tenancy, s.served, s.calls, tokens, s.installation)
	if err != nil {
		return nil, err
	}
	s.certificates = authn.certificates
	if s.authz, err = newAuthz(opts, s.tenancy, s.installation, s.fresh.Stale); err != nil {
		return nil, err
	}
	g.Authentication.Authenticator = authn.authenticator
	g.Authorization.Authorizer, g.RuleResolver = authorization.Undecided(s.authz.authorizer), authorization.Resolver{Rules: s.authz.rules}
	views, slices, err := newViews(s.tenancy, s.authz, s.served)
	if err != nil {
		return nil, err
	}
	s.handleConsumers()
	if g.AdmissionControl, err = s.newAdmission(limits); err != nil {
		return nil, err
	}
	requests, err := s.newRequests(views, ctx.Done())
	if err != nil {
		return nil, err
	}
	g.BuildHandlerChainFunc = requests.chain
	s.api, err = s.install(slices, authn.reviews)
	return s, err
}

// prepareStorage registers the metrics and reports of the storage, and returns its object limits.
func (s *server) prepareStorage() (*objectlimit.Limits, error) {
	s.backend.OnUnreadable(s.unreadable.add)
	if err := s.backend.RegisterMetrics(legacyregistry.Register); err != nil {
		return nil, err
	}
	s.registerStorageMetrics()
	limits := objectlimit.New(objectlimit.Config{
		Standard: s.opts.TotalObjectLimit, Interval: s.opts.ObjectCountInterval, Clock: clock.RealClock{},
		Count: func(ctx context.Context) (int64, error) {
			stored, err := s.served.storedResources(ctx)
			if err != nil {
				return 0, err
			}
			return s.backend.Count(ctx, stored)
		},
	})
	s.backend.SetLimit(limits)
	return limits, s.backend.Register(legacyregistry.Register)
}

func (s *server) newAdmission(limits *objectlimit.Limits) (admission.Interface, error) {
	t := s.tenancy
	return kcpadmission.New(kcpadmission.Config{
		Set: t.set, Kube: s.clients.kube, Dynamic: s.clients.dynamic, Authorizer: s.authz.authorizer, Tree: t.tree, Types: t.types,
		References: t.references, Exports: t.exports, Limits: limits,
		Placed: func(ctx context.Context, shard string) int64 { return s.installation.placed(ctx, shard) },
		Payer:  inflight.Payer(t.set.LogicalClusters), MaxLargeObjects: int(s.opts.MaxLargeObjects),
		ClientFor:     s.clients.in,
		RESTMapper:    s.served.restMapper,
		TypeConverter: s.served.typeConverter,
		OfServer: func(resource schema.GroupResource) bool {
			_, exported := t.exports.System()[resource]
			return s.served.builtin.Has(resource) || (s.served.custom.IsSystem(resource) && !exported)
		},
		WebhookAuthentication: s.calls.Webhooks(kcpadmission.WebhookLimits, s.up.generic.TracerProvider),
	})
}

func (s *server) newRequests(views virtual.Views, stopping <-chan struct{}) (*requests, error) {
	g, t := s.up.generic, s.tenancy
	q := &requests{
		opts: s.opts, tenancy: t, installation: s.installation, served: s.served, views: views, fresh: s.fresh,
		loopbackToken: s.clients.loopback.BearerToken, stopping: stopping,
		entry: &defaultcontent.Writer{
			Set: t.set, Creator: &s.served.registries, Storages: t.defaultStorages(), CA: s.up.rootCA, Await: t.defaults.Await,
			Bindings: t.defaultBindings, Stored: t.stored["apibindings"], Arriving: t.exports.Arriving,
		},
	}
	q.entry.Follow()
	var err error
	if q.inflight, err = newInflight(s.opts, g, t); err != nil {
		return nil, err
	}
	if q.mounts, s.mountHosts, err = newMounts(s.opts, g, t, s.installation); err != nil {
		return nil, err
	}
	g.AddReadyzChecks(
		healthz.NamedCheck("etcd", func(r *http.Request) error { return s.backend.Ping(r.Context()) }),
		healthz.NamedCheck("etcd-space", func(*http.Request) error { return s.backend.CheckRoom() }),
		healthz.NamedCheck("freshness", func(*http.Request) error { return s.fresh.Stale() }),
	)
	for _, checks := range [][]healthz.HealthChecker{g.HealthzChecks, g.LivezChecks, g.ReadyzChecks} {
		q.health.Remember(checks)
	}
	return q, nil
}
