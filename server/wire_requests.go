package server

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/process/health"
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
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// requests builds the chain of filters that a request passes.
type requests struct {
	opts    options.Completed
	tenancy *tenancy
	// installation is nil for a single shard.
	installation *installation
	served       *served
	views        virtual.Views
	fresh        *freshness.State
	inflight     *inflight.Limits
	mounts       *mount.Proxy
	entry        *defaultcontent.Writer
	// health has the reasons of failed checks.
	health health.Checks
	// loopbackToken authenticates requests of the server to itself.
	loopbackToken string
	// stopping is closed when the server begins to stop.
	stopping <-chan struct{}
}

// newInflight replaces upstream's limits of requests in flight, with which one tenant could use all of them.
func newInflight(opts options.Completed, g *genericapiserver.Config, tenancy *tenancy) (*inflight.Limits, error) {
	limits := inflight.New(inflight.Config{
		Requests: opts.MaxRequests, Watches: opts.MaxWatches, Reads: g.MaxRequestsInFlight, Writes: g.MaxMutatingRequestsInFlight,
		AllWatches: opts.MaxAllWatches,
		Bytes:      opts.RequestMemory, MaxBody: g.MaxRequestBodyBytes,
		LongRunning: g.LongRunningFunc, Serializer: g.Serializer, Clusters: tenancy.set.LogicalClusters,
	})
	g.MaxRequestsInFlight, g.MaxMutatingRequestsInFlight = 0, 0
	return limits, limits.Register(legacyregistry.Register, legacyregistry.CustomRegister)
}

// newMounts returns the proxy for requests to mounted workspaces, and the hosts that it may use.
func newMounts(opts options.Completed, g *genericapiserver.Config, tenancy *tenancy, installation *installation) (
	*mount.Proxy, *mount.Hosts, error) {
	own := []string{opts.ShardBaseURL, opts.ShardExternalURL, opts.ShardVirtualWorkspaceURL}
	hosts, err := mount.NewHosts(own, opts.MountProxy.Hosts)
	if err != nil {
		return nil, nil, fmt.Errorf("--mount-proxy-hosts: %w", err)
	}
	certificate, _ := g.SecureServing.Cert.CurrentCertKeyContent()
	authorities, err := installation.servingAuthorities(opts.Sharding)
	if err != nil {
		return nil, nil, err
	}
	proxy, err := mount.NewProxy(mount.Config{
		Hosts: hosts, Workspaces: tenancy.set.Workspaces, ServingCertificate: certificate, Authorities: authorities,
		Files: opts.MountProxy.Files, Serializer: g.Serializer,
	})
	return proxy, hosts, err
}

// chain returns the chain of filters, built from the innermost handler outwards.
func (q *requests) chain(api http.Handler, g *genericapiserver.Config) http.Handler {
	set := q.tenancy.set
	q.served.api = path.WithoutServer(q.health.WithReasons(api, g.Authorization.Authorizer), g.Serializer)
	h := q.served.current(func() http.Handler { return q.served.documents })
	h = q.served.withCustomResources(h)
	h = q.installation.withHoldings(h, g.Serializer)
	h = q.entry.WithContent(h, g.Serializer)
	h = inactive.NewWatches(set.LogicalClusters).WithEnd(h)
	h = bodylimit.WithSelectors(bodylimit.WithText(h))
	h = q.mounts.WithMounts(virtual.Serve(inactive.WithRefusal(h, set.LogicalClusters, q.inService, g.Serializer)))
	if q.opts.Homes.Enabled {
		h = q.homes(g).WithHome(h)
	}
	h = authorization.WithDeepReview(h)
	h = authentication.WithImpersonationScope(h)
	h = q.inflight.WithLimits(h)
	traced := q.opts.Generic.Traces != nil && q.opts.Generic.Traces.ConfigFile != ""
	if traced {
		h = path.WithSpan(h, q.tenancy.tree.Path)
	}
	h = q.installation.withUndecided(genericapiserver.DefaultBuildHandlerChain(h, g), g)
	h = authentication.WithOriginalUser(h)
	h = q.installation.withVerdicts(h)
	if g.AuditBackend != nil {
		h = path.WithAuditAnnotations(h, q.tenancy.tree.Path)
	} else {
		h = path.WithoutAudit(h)
	}
	bare := h
	own := func(r *http.Request) bool { return authorization.IsServer(r.Context()) }
	h = inactive.WithRefusal(h, set.LogicalClusters, own, g.Serializer)
	h = q.installation.withLoaded(h, own, g)
	places := pathindex.NewStored(q.tenancy.tree, q.tenancy.stored["logicalclusters"], q.tenancy.stored["workspaces"], own)
	if q.opts.Sharding.Enabled() {
		places.Shard = q.opts.ShardName
	}
	resolve := func(h http.Handler) http.Handler { return path.WithCluster(h, g.Serializer, places) }
	if traced {
		h = path.WithTrace(h, resolve)
	} else {
		h = resolve(h)
	}
	bare = virtual.WithKnown(bare, func(r *http.Request, cluster logicalcluster.Name) error {
		_, _, err := places.Find(r, string(cluster)) // authorization responds for a cluster that does not exist
		return err
	}, g.Serializer)
	h = q.views.WithView(h, bare, g.Serializer)
	h = q.installation.withMarkers(h, g.Serializer)
	h = q.installation.withCalls(h)
	h = q.fresh.WithRefusal(h, own, g.Serializer)
	h = q.installation.withCache(h)
	h = q.withPart(h, g.Serializer)
	h = authentication.WithServer(h, q.loopbackToken)
	h = authentication.WithInClusterServiceAccount(h)
	h = drain.WithClose(h, q.stopping)
	return slowclient.New(q.opts.StalledClientTimeout, clock.RealClock{}).WithTimeout(h)
}

// withPart refuses what other processes of this shard serve: virtual workspaces, or everything else.
func (q *requests) withPart(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	message := "the virtual workspaces of this shard are served at " + q.opts.ShardVirtualWorkspaceURL
	switch {
	case q.opts.OnlyVirtualWorkspaces:
		message = "this process serves only the virtual workspaces of a shard"
	case q.opts.RunVirtualWorkspaces:
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here := q.views.Has(r.URL.Path) == q.opts.OnlyVirtualWorkspaces
		if here || path.IsServerPath(r.URL.Path) || authorization.IsServer(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
		}}, s, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

// homes returns what serves the homes of users.
func (q *requests) homes(g *genericapiserver.Config) *home.Homes {
	homes := &home.Homes{
		Clusters: q.tenancy.stored["logicalclusters"], Scheduler: q.tenancy.scheduler, Authorizer: g.Authorization.Authorizer,
		Serializer: g.Serializer,
	}
	q.installation.share(homes)
	return homes
}

// inService reports whether a request is served even if its logical cluster is inactive. Requests outside of views have passed this check
// already. In views, requests for a logical cluster that is being deleted are served: clients of the view still finish its deletion.
func (q *requests) inService(r *http.Request) bool {
	if !virtual.InView(r.Context()) {
		return true
	}
	name, err := logicalcluster.NameFrom(r.Context())
	if err != nil {
		return true
	}
	lc, err := q.tenancy.set.LogicalClusters.Get(name, "", corev1alpha1.LogicalClusterName)
	return err == nil && lc.DeletionTimestamp != nil
}
