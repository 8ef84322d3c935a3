package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/controllers/endpointslice"
	"github.com/kcplane/kcp/server/internal/controllers/workspacereport"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/shards"
	"github.com/kcplane/kcp/server/internal/shards/feed"
	"github.com/kcplane/kcp/server/internal/shards/lookup"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/shards/workspaces"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

// installation contains the parts of a server that is one shard of several. A single shard has none of them.
type installation struct {
	opts    options.Completed
	backend *storage.Backend
	tenancy *tenancy
	// incarnation is the ID of the store of this shard.
	incarnation string
	authorities *dynamiccertificates.DynamicFileCAContent
	// calls are what peers call here, clients call the other shards.
	calls   *peers.Server
	clients *peers.Clients
	root    *rest.Config

	// holders decides which shard holds a logical cluster; elsewhere has the objects of other shards.
	holders   *placement.Holders
	elsewhere *informers.Elsewhere

	registry *shards.Registry
	usage    *usage
	// places answers peers what this shard holds.
	places   *tree.Places
	offering *offering
	// membership notices a cache server of another installation, whose ID is not knownID.
	membership *feed.Membership
	knownID    atomic.Pointer[string]
	reading    *reading
	// cache is nil unless this shard serves the cache of the installation.
	cache *cache
	// workspaces are the calls about the logical clusters of Workspaces on other shards.
	workspaces *workspaces.Calls
	orphans    *workspacereport.Orphans
	// locator finds the shards of clusters by name, finder what requests refer to. answers is what other shards find here.
	locator    *workspaces.Locator
	finder     *lookup.Finder
	answers    *lookup.Answers
	migrations *migrations
	// verdicts authenticates service accounts of other shards.
	verdicts *authentication.Verdicts
}

// newInstallation returns the parts, and nil for a single shard.
func newInstallation(ctx context.Context, opts options.Completed, backend *storage.Backend, up *upstream,
	tenancy *tenancy) (*installation, error) {
	if !opts.Sharding.Enabled() {
		return nil, refuseShard(ctx, backend)
	}
	g := up.generic
	i := &installation{opts: opts, backend: backend, tenancy: tenancy}
	i.membership = &feed.Membership{Installation: i.id}
	var err error
	if opts.Sharding.Adopt {
		err = backend.ForgetIncarnation(ctx)
	}
	if err == nil {
		i.incarnation, err = backend.Incarnation(ctx)
	}
	if err != nil {
		return nil, err
	}
	if i.authorities, err = dynamiccertificates.NewDynamicCAContentFromFile("peers", opts.Sharding.PeerCA); err != nil {
		return nil, fmt.Errorf("--peer-client-ca-file: %w", err)
	}
	if err := g.Authentication.ApplyClientCert(i.authorities, g.SecureServing); err != nil {
		return nil, fmt.Errorf("--peer-client-ca-file: %w", err)
	}
	i.holders = placement.New(tenancy.set, opts.ShardName)
	if i.elsewhere, err = tenancy.informers.Share(i.holders.Placement); err != nil {
		return nil, err
	}
	i.calls = peers.NewServer(i.authorities, g.Serializer)
	if i.clients, err = i.newClients(); err != nil {
		return nil, err
	}
	i.usage = newUsage(backend, tenancy)
	if err := i.scheduleElsewhere(); err != nil {
		return nil, err
	}
	i.moveClusters(g, up.signers)
	i.serveTree(ctx)
	i.findReferences()
	if i.offering, err = i.newOffering(); err != nil {
		return nil, err
	}
	if i.reading, err = i.newReading(ctx); err != nil {
		return nil, err
	}
	peers.Handle(i.calls, shards.CallState, []peers.Kind{peers.Shard}, shards.ServeState(i.state))
	if opts.Sharding.IsRoot() {
		return i, i.beRoot(ctx)
	}
	return i, nil
}

// refuseShard returns an error if the store of a server without the options of a shard is that of a shard. Such a server would create
// another root, and would write what is being moved.
func refuseShard(ctx context.Context, records shards.Records) error {
	id, err := records.Record(ctx, shards.InstallationRecord)
	if err == nil && id != "" {
		err = fmt.Errorf("this store is that of a shard of installation %s: start with --peer-client-ca-file and the other options of the shard",
			id)
	}
	return err
}

// newClients returns the clients that call other shards.
func (i *installation) newClients() (*peers.Clients, error) {
	s := i.opts.Sharding
	if !s.IsRoot() {
		var err error
		if i.root, err = outbound.Kubeconfig(s.RootKubeconfig); err != nil {
			return nil, fmt.Errorf("--root-shard-kubeconfig-file: %w", err)
		}
	}
	tls := trustOf(s, i.root)
	tls.CertFile, tls.KeyFile = s.ClientCert, s.ClientKey
	clients, err := peers.NewClients(peers.Config{TLS: tls, URL: i.urlOf, Clock: clock.RealClock{}})
	if err != nil {
		return nil, fmt.Errorf("--shard-client-cert-file, --shard-ca-file: %w", err)
	}
	return clients, nil
}

// trustOf returns the authorities of the serving certificates of shards: those of --shard-ca-file, or else those in the kubeconfig of the
// root shard, which the root shard itself does not have.
func trustOf(s options.Sharding, root *rest.Config) rest.TLSClientConfig {
	if s.ShardCA == "" && root != nil {
		return rest.TLSClientConfig{CAFile: root.CAFile, CAData: root.CAData}
	}
	return rest.TLSClientConfig{CAFile: s.ShardCA}
}

// servingAuthorities returns the authorities of the serving certificates of an installation of several shards, as PEM. i is nil for a
// single shard.
func (i *installation) servingAuthorities(s options.Sharding) ([]byte, error) {
	var root *rest.Config
	if i != nil {
		root = i.root
	}
	config := &rest.Config{TLSClientConfig: trustOf(s, root)}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("--shard-ca-file, --root-shard-kubeconfig-file: %w", err)
	}
	return config.CAData, nil
}

// urlOf returns the URL of a shard for other shards.
func (i *installation) urlOf(name string) (string, bool) {
	shard, err := i.tenancy.set.Shards.Get(logicalcluster.Root, "", name)
	if err == nil && shard.Spec.BaseURL != "" {
		return shard.Spec.BaseURL, true
	}
	if name == peers.Root && i.root != nil {
		return i.root.Host, true
	}
	return "", false
}

// beRoot adds what only the root shard does. The installation has the ID of the store in which it began.
func (i *installation) beRoot(ctx context.Context) error {
	id, err := i.backend.Record(ctx, shards.InstallationRecord)
	wanted := i.opts.Sharding.InstallationID
	switch {
	case err == nil && id == "":
		id = cmp.Or(wanted, i.incarnation)
		err = i.backend.SetRecord(ctx, shards.InstallationRecord, id)
	case err == nil && wanted != "" && wanted != id:
		err = fmt.Errorf("--installation-id is %s, but this store belongs to installation %s", wanted, id)
	}
	if err != nil {
		return err
	}
	if i.opts.Sharding.CacheKubeconfig == "" {
		if i.cache, err = i.newCache(ctx); err != nil {
			return err
		}
	}
	i.registry = &shards.Registry{Shards: i.tenancy.stored["shards"], Installation: id}
	peers.Handle(i.calls, shards.CallRegister, []peers.Kind{peers.Shard}, i.registry.Register)
	return nil
}

// join registers this shard in root. later continues in the background, if it is not nil.
func (i *installation) join(ctx context.Context) (later func(context.Context), err error) {
	self := peers.Identity{Kind: peers.Shard, Name: i.opts.ShardName}
	send := func(ctx context.Context, in shards.Registration) (shards.Installation, error) {
		return peers.Call[shards.Registration, shards.Installation](ctx, i.clients, peers.Root, shards.CallRegister, in)
	}
	if i.registry != nil {
		send = func(ctx context.Context, in shards.Registration) (shards.Installation, error) {
			return i.registry.Register(ctx, self, in)
		}
	}
	registrar := &shards.Registrar{
		Name: self.Name, Send: send, Records: i.backend, Clock: clock.RealClock{},
		Registration: shards.Registration{
			BaseURL: i.opts.ShardBaseURL, ExternalURL: i.opts.ShardExternalURL, VirtualWorkspaceURL: i.opts.ShardVirtualWorkspaceURL,
			Incarnation: i.incarnation, Adopt: i.opts.Sharding.Adopt,
		},
	}
	return registrar.Start(ctx)
}

// state returns what this shard holds.
func (i *installation) state(ctx context.Context) shards.State {
	state := shards.State{Incarnation: i.incarnation, Time: time.Now(), Used: i.usage.read(ctx), CacheOf: i.membership.Other()}
	if limit := i.opts.Sharding.MaxLogicalClusters; limit > 0 {
		state.Capacity = map[corev1.ResourceName]int64{corev1alpha1.ResourceLogicalClusters: limit}
	}
	return state
}

// readState returns the state of a shard, which can be this one.
func (i *installation) readState(ctx context.Context, shard string) (shards.State, error) {
	if shard == i.opts.ShardName {
		return i.state(ctx), nil
	}
	return peers.Call[shards.Question, shards.State](ctx, i.clients, shard, shards.CallState, shards.Question{})
}

// placed returns how many logical clusters a shard holds: the maximum of what this shard has recorded, and of what the shard says.
func (i *installation) placed(ctx context.Context, shard string) int64 {
	if i == nil {
		return 0
	}
	recorded := int64(0)
	for ws := range i.tenancy.set.Workspaces.All() {
		if placement.Of(ws).Shard == shard {
			recorded++
		}
	}
	limited, cancel := context.WithTimeout(ctx, placedTimeout)
	defer cancel()
	if state, err := i.readState(limited, shard); err == nil {
		return max(recorded, state.Used[corev1alpha1.ResourceLogicalClusters])
	}
	if known, err := i.tenancy.set.Shards.Get(logicalcluster.Root, "", shard); err == nil {
		last := known.Status.Used[corev1alpha1.ResourceLogicalClusters]
		recorded = max(recorded, last.Value())
	}
	return recorded
}

// placedTimeout limits how long the deletion of a Shard waits for the shard.
const placedTimeout = 5 * time.Second

// quarantined reports whether the store of a shard was restored, and kubectl kcp check has not compared the shard with the others since.
func (i *installation) quarantined(shard string) bool {
	known, err := i.tenancy.set.Shards.Get(logicalcluster.Root, "", shard)
	return err == nil && known.Annotations[corev1alpha1.QuarantineAnnotation] != ""
}

// controllers returns what the leader of a sharded installation runs besides the controllers of every server.
func (i *installation) controllers() []runnable {
	if i == nil {
		return nil
	}
	run := []runnable{i.reading.kept}
	if i.registry != nil {
		run = append(run, shards.NewFollower(i.tenancy.set.Shards, i.tenancy.stored["shards"], i.readState, clock.RealClock{}))
	}
	return run
}

// usage counts what this shard holds.
type usage struct {
	backend  *storage.Backend
	clusters atomic.Int64
}

func newUsage(backend *storage.Backend, tenancy *tenancy) *usage {
	u := &usage{backend: backend}
	tenancy.set.LogicalClusters.AddHandler(func(old, obj runtime.Object) {
		switch {
		case old == nil:
			u.clusters.Add(1)
		case obj == nil:
			u.clusters.Add(-1)
		}
	})
	return u
}

// read returns the amounts that are known.
func (u *usage) read(ctx context.Context) map[corev1.ResourceName]int64 {
	amounts := map[corev1.ResourceName]int64{corev1alpha1.ResourceLogicalClusters: u.clusters.Load()}
	if objects, bytes, err := u.backend.Usage(ctx); err == nil {
		amounts[corev1alpha1.ResourceObjects], amounts[corev1alpha1.ResourceBytes] = objects, bytes
	}
	return amounts
}

// slices returns the inputs of the controllers of endpoint slices, whose objects are stored under a name.
func (s *server) slices(set *informers.Set, stored string) endpointslice.Inputs {
	in := endpointslice.Inputs{
		Set: set, Exports: s.tenancy.exports, Cached: s.tenancy.cached, Slices: s.tenancy.stored[stored], ShardName: s.opts.ShardName,
	}
	if s.installation != nil {
		in.Others = consumers{s.installation}
	}
	return in
}

// handleConsumers lets other shards report that they have consumers of exports of this shard.
func (s *server) handleConsumers() {
	if s.installation == nil {
		return
	}
	peers.Handle(s.installation.calls, endpointslice.CallConsumers, []peers.Kind{peers.Shard}, endpointslice.Reports(
		s.slices(s.tenancy.set, "apiexportendpointslices"), s.slices(s.tenancy.set, "clustercachedresourceendpointslices")))
}

// consumers is an endpointslice.Shards.
type consumers struct{ *installation }

func (c consumers) Holder(cluster logicalcluster.Name) string { return c.elsewhere.Holder(cluster) }

func (c consumers) Report(ctx context.Context, shard string, in endpointslice.Consumption) error {
	_, err := peers.Call[endpointslice.Consumption, endpointslice.Accepted](ctx, c.clients, shard, endpointslice.CallConsumers, in)
	return err
}

// withCalls serves the calls of peers, which are not users, before authentication.
func (i *installation) withCalls(next http.Handler) http.Handler {
	if i == nil {
		return next
	}
	return i.calls.WithCalls(next)
}

// withCache serves the cache of the installation, which does not depend on the state of this shard.
func (i *installation) withCache(next http.Handler) http.Handler {
	if i == nil || i.cache == nil {
		return next
	}
	return i.cache.with(next)
}

// joinInstallation registers this shard, if it is one of several.
func (s *server) joinInstallation(hook genericapiserver.PostStartHookContext) error {
	if s.installation == nil {
		return nil
	}
	s.background.Go(func() { s.installation.authorities.Run(hook, 1) })
	if s.installation.cache != nil {
		s.background.Go(func() { s.installation.cache.run(hook) })
	}
	s.startReading(hook)
	if s.opts.OnlyVirtualWorkspaces {
		return nil // the shard itself registers
	}
	later, err := s.installation.join(hook)
	if later != nil {
		s.background.Go(func() { later(hook) })
	}
	return err
}
