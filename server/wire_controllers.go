package server

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

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
	"github.com/kcplane/kcp/server/internal/request/inflight"
)

// runControllers runs every controller until ctx ends, and returns when the last one has stopped. Each serves all logical
// clusters. It can be called again: nothing is left of controllers that have stopped.
func (s *server) runControllers(ctx context.Context) {
	set, end := s.tenancy.set.Branch()
	defer end()
	ca, stored, serves := s.up.rootCA, s.tenancy.stored, s.served.custom.List
	quotas := resourcequota.New(set, s.clients.kube, s.clients.metadata, s.served.discovery.Resources)
	mounts := mount.New(mount.Inputs{Set: set, Dynamic: s.clients.dynamic, RESTMapper: s.served.restMapper, Hosts: s.mountHosts,
		Workspaces: stored["workspaces"]})
	labels := claimlabels.New(s.tenancy.exports, s.clients.metadata, s.served.discovery.Served)
	cached := clustercachedresource.New(clustercachedresource.Inputs{
		Set: set, Cached: s.tenancy.cached, Kube: s.clients.kube, Metadata: s.clients.metadata, Serves: serves,
		Stored: stored["clustercachedresources"],
	})
	remains := s.backend.Remains(s.up.definitionOptions)
	collector := garbagecollector.New(s.clients.metadata, s.clients.kube, s.served.discovery, s.tenancy.informers.Existing, quotas,
		mounts, labels, cached)
	s.served.collector.Store(collector)
	defer s.served.collector.Store(nil)
	ctx = runner.WithPayer(ctx, inflight.Payer(set.LogicalClusters))
	var running sync.WaitGroup
	defer running.Wait()
	for _, ctl := range []interface{ Run(context.Context) }{
		serviceaccount.New(set, s.clients.kube),
		rootca.New(set, s.clients.kube, ca),
		serviceaccounttoken.New(set, s.clients.kube, s.up.secretIssuer, ca),
		clusterroleaggregation.New(set, s.clients.kube),
		customresourcedefinition.New(customresourcedefinition.Inputs{
			Set: set, Definitions: s.clients.definitions.CustomResourceDefinitions(), Metadata: s.clients.metadata, Remains: remains, Serves: serves,
			BuiltIn: s.served.discovery.BuiltinNames,
		}),
		namespace.New(set, s.clients.kube, s.clients.metadata, s.served.discovery.Resources, s.backend.Held),
		logicalcluster.New(logicalcluster.Inputs{
			Set: set, Metadata: s.clients.metadata, Resources: s.served.discovery.Resources, Held: s.backend.Held,
			ExternalURL: s.opts.ShardExternalURL,
			Serves:      serves, Remains: remains,
			Clusters: stored["logicalclusters"], Workspaces: stored["workspaces"],
		}),
		workspace.New(workspace.Inputs{Set: set, Scheduler: s.tenancy.scheduler, Clusters: stored["logicalclusters"],
			Workspaces: stored["workspaces"]}),
		workspacetype.New(set, s.clients.dynamic),
		apiexport.New(apiexport.Inputs{Set: set, Kube: s.clients.kube, Dynamic: s.clients.dynamic, Exports: stored["apiexports"]}),
		apibinding.New(apibinding.Inputs{
			Set: set, Exports: s.tenancy.exports, Defaults: s.tenancy.defaultBindings, Serves: serves, BuiltIn: s.served.discovery.BuiltinNames,
			Resources: s.served.discovery.Resources, Metadata: s.clients.metadata,
			Remains: remains, Bindings: stored["apibindings"], Schemas: stored["apiresourceschemas"], Conversions: stored["apiconversions"],
			Clusters: stored["logicalclusters"],
		}),
		endpointslice.ForExports(endpointslice.Inputs{
			Set: set, Exports: s.tenancy.exports, Slices: stored["apiexportendpointslices"], ShardName: s.opts.ShardName,
		}),
		endpointslice.ForCachedResources(endpointslice.Inputs{
			Set: set, Exports: s.tenancy.exports, Slices: stored["clustercachedresourceendpointslices"], ShardName: s.opts.ShardName,
		}, s.tenancy.cached),
		cached,
		boundschemas.New(boundschemas.Inputs{
			Set: set, Schemas: stored["apiresourceschemas"], Conversions: stored["apiconversions"], Clock: clock.RealClock{},
		}),
		partitionset.New(partitionset.Inputs{Set: set, Dynamic: s.clients.dynamic, Sets: stored["partitionsets"]}),
		validatingadmissionpolicystatus.New(validatingadmissionpolicystatus.Inputs{
			Set: set, Kube: s.clients.kube, Schemas: s.served.schemas, RESTMapper: s.served.restMapper,
		}),
		certificates.New(set, s.clients.kube, clock.RealClock{}),
		certificates.NewSigner(set, s.clients.kube, s.certificates),
		quotas,
		mounts,
		labels,
		collector,
	} {
		running.Go(func() { ctl.Run(ctx) })
	}
}
