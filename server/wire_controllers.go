package server

import (
	"context"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/apibinding"
	"github.com/kcplane/kcp/server/internal/controllers/apiexport"
	"github.com/kcplane/kcp/server/internal/controllers/boundschemas"
	"github.com/kcplane/kcp/server/internal/controllers/certificates"
	"github.com/kcplane/kcp/server/internal/controllers/claimlabels"
	"github.com/kcplane/kcp/server/internal/controllers/clustercachedresource"
	"github.com/kcplane/kcp/server/internal/controllers/clusterroleaggregation"
	"github.com/kcplane/kcp/server/internal/controllers/customresourcedefinition"
	"github.com/kcplane/kcp/server/internal/controllers/endpointslice"
	"github.com/kcplane/kcp/server/internal/controllers/garbagecollector"
	"github.com/kcplane/kcp/server/internal/controllers/logicalcluster"
	"github.com/kcplane/kcp/server/internal/controllers/mount"
	"github.com/kcplane/kcp/server/internal/controllers/namespace"
	"github.com/kcplane/kcp/server/internal/controllers/partitionset"
	"github.com/kcplane/kcp/server/internal/controllers/resourcequota"
	"github.com/kcplane/kcp/server/internal/controllers/rootca"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/controllers/serviceaccount"
	"github.com/kcplane/kcp/server/internal/controllers/serviceaccounttoken"
	"github.com/kcplane/kcp/server/internal/controllers/validatingadmissionpolicystatus"
	"github.com/kcplane/kcp/server/internal/controllers/workspace"
	"github.com/kcplane/kcp/server/internal/controllers/workspacetype"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/informers/transitions"
	"github.com/kcplane/kcp/server/internal/request/inflight"
	"github.com/kcplane/kcp/server/internal/shards/feed"
	"github.com/kcplane/kcp/server/internal/storage"
)

// runControllers runs every controller until ctx ends, and returns when the last one has stopped. Each serves all logical clusters. It can
// be called again: controllers that have stopped leave nothing behind.
func (s *server) runControllers(ctx context.Context) {
	set, end := s.tenancy.set.Branch()
	defer end()
	ctx = runner.WithPayer(ctx, inflight.Payer(set.LogicalClusters))
	if s.installation != nil {
		ctx = runner.WithMoving(ctx, s.installation.isMoving)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, c := range s.newControllers(set) {
		running.Go(func() { c.Run(ctx) })
	}
}

// runnable is a controller.
type runnable interface{ Run(context.Context) }

// controllers has what several controllers need.
type controllers struct {
	*server
	*clients
	set     *informers.Set
	stored  map[string]*storage.Typed
	remains *storage.Remains
	// objects passes on what the garbage collector sees of the objects of all resources.
	objects *runner.ObjectEvents
	// offer is nil on a single shard.
	offer *feed.Offer
	clock clock.RealClock
}

// newControllers returns every controller, in no order that matters. Their Inputs declare what they need.
func (s *server) newControllers(set *informers.Set) []runnable {
	c := controllers{
		server: s, clients: s.clients, set: set, stored: s.tenancy.stored, remains: s.backend.Remains(s.up.definitionOptions),
		objects: &runner.ObjectEvents{},
	}
	all := slices.Concat(c.ofKubernetes(), c.betweenShards(), s.installation.controllers())
	if c.offer = s.installation.offer(set, s.clients, c.objects); c.offer != nil {
		all = append(all, c.offer)
	}
	return append(all, c.ofTenancy()...)
}

// ofKubernetes returns the controllers that do what those of kube-controller-manager do.
func (c controllers) ofKubernetes() []runnable {
	definitions := customresourcedefinition.Inputs{
		Set: c.set, Definitions: c.definitions.CustomResourceDefinitions(), Metadata: c.metadata, Remains: c.remains,
		Serves: c.served.custom.List, BuiltIn: c.served.discovery.BuiltinNames,
	}
	requests := certificates.Inputs{Set: c.set, Kube: c.kube, Authority: c.certificates, Clock: c.clock}
	return []runnable{
		serviceaccount.New(serviceaccount.Inputs{Set: c.set, Kube: c.kube}),
		rootca.New(rootca.Inputs{Set: c.set, Kube: c.kube, CA: c.up.rootCA}),
		serviceaccounttoken.New(serviceaccounttoken.Inputs{Set: c.set, Kube: c.kube, Tokens: c.up.secretIssuer, CA: c.up.rootCA}),
		clusterroleaggregation.New(clusterroleaggregation.Inputs{Set: c.set, Kube: c.kube}),
		customresourcedefinition.New(definitions),
		customresourcedefinition.NewDeleter(definitions),
		namespace.New(namespace.Inputs{
			Set: c.set, Kube: c.kube, Metadata: c.metadata, Resources: c.served.discovery.Resources, Held: c.backend.StoredResources,
		}),
		validatingadmissionpolicystatus.New(validatingadmissionpolicystatus.Inputs{
			Set: c.set, Kube: c.kube, Schemas: c.served.schemas, RESTMapper: c.served.restMapper,
		}),
		certificates.NewCleaner(requests),
		certificates.NewSigner(requests),
		resourcequota.New(resourcequota.Inputs{
			Set: c.set, Kube: c.kube, Metadata: c.metadata, Resources: c.served.discovery.Resources, Objects: c.objects, Clock: c.clock,
		}),
		garbagecollector.New(garbagecollector.Inputs{
			Metadata: c.metadata, Kube: c.kube, Resources: c.served.discovery, ResourcesChanged: c.served.changed,
			Existing: c.tenancy.informers.Existing, Appears: c.backend.Appears, Objects: c.objects, Clock: c.clock,
		}),
	}
}

// clusterCachedResources returns the controller of ClusterCachedResources. With several shards, it counts what the others can read.
func (c controllers) clusterCachedResources() runnable {
	in := clustercachedresource.Inputs{
		Set: c.set, Cached: c.tenancy.cached, Kube: c.kube, Metadata: c.metadata, Serves: c.served.custom.List,
		Stored: c.stored["clustercachedresources"], Objects: c.objects,
	}
	if c.offer != nil {
		in.InCache = c.offer.Published()
	}
	return clustercachedresource.New(in)
}

// ofTenancy returns the controllers of the kinds of kcp.
func (c controllers) ofTenancy() []runnable {
	clusters, workspaces := c.stored["logicalclusters"], c.stored["workspaces"]
	schemas, conversions := c.stored["apiresourceschemas"], c.stored["apiconversions"]
	ofSlices := func(stored string) endpointslice.Inputs { return c.slices(c.set, stored) }
	return []runnable{
		logicalcluster.New(logicalcluster.Inputs{
			Set: c.set, Metadata: c.metadata, Resources: c.served.discovery.Resources, Held: c.backend.StoredResources, Serves: c.served.custom.List,
			Remains: c.remains, Contents: c.backend.Contents(corev1alpha1.Resource("logicalclusters")), Clusters: clusters, Workspaces: workspaces,
			Left: c.installation.leftFunc(), ExternalURL: c.opts.ShardExternalURL, Clock: c.clock,
		}),
		workspace.New(workspace.Inputs{
			Set: c.set, Scheduler: c.tenancy.scheduler, Clusters: clusters, Workspaces: workspaces, Elsewhere: c.installation.deleteElsewhere(),
			Clock: c.clock,
		}),
		workspacetype.New(workspacetype.Inputs{Set: c.set, Dynamic: c.dynamic}),
		mount.New(mount.Inputs{
			Set: c.set, Dynamic: c.dynamic, RESTMapper: c.served.restMapper, Hosts: c.mountHosts, Workspaces: workspaces, Objects: c.objects,
		}),
		apiexport.New(apiexport.Inputs{Set: c.set, Kube: c.kube, Dynamic: c.dynamic, Exports: c.stored["apiexports"]}),
		apibinding.New(apibinding.Inputs{
			Set: c.set, Exports: c.tenancy.exports, Defaults: c.tenancy.defaultBindings, Serves: c.served.custom.List,
			BuiltIn: c.served.discovery.BuiltinNames, Resources: c.served.discovery.Resources, Metadata: c.metadata, Remains: c.remains,
			Bindings: c.stored["apibindings"], Schemas: schemas, Conversions: conversions, Clusters: clusters, Clock: c.clock,
		}),
		boundschemas.New(boundschemas.Inputs{Set: c.set, Schemas: schemas, Conversions: conversions, Clock: c.clock}),
		claimlabels.New(claimlabels.Inputs{
			Exports: c.tenancy.exports, Metadata: c.metadata, Served: c.served.discovery.Served, Objects: c.objects,
		}),
		c.clusterCachedResources(),
		endpointslice.NewForExports(ofSlices("apiexportendpointslices")),
		endpointslice.NewForCachedResources(ofSlices("clustercachedresourceendpointslices")),
		partitionset.New(partitionset.Inputs{Set: c.set, Dynamic: c.dynamic, Sets: c.stored["partitionsets"]}),
		transitions.New(c.set, c.clock),
	}
}
