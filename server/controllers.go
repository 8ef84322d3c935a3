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
func (c *config) runControllers(ctx context.Context) {
	set, end := c.set.Branch()
	defer end()
	ca := c.rootCA()
	quotas := resourcequota.New(set, c.kube, c.metadata, c.discovery.Resources)
	mounts := mount.New(mount.Inputs{Set: set, Dynamic: c.dynamic, RESTMapper: c.restMapper, Hosts: c.mountHosts, Workspaces: c.stored["workspaces"]})
	labels := claimlabels.New(c.exports, c.metadata, c.discovery.Served)
	cached := clustercachedresource.New(clustercachedresource.Inputs{
		Set: set, Cached: c.cached, Kube: c.kube, Metadata: c.metadata, Serves: c.custom.List, Stored: c.stored["clustercachedresources"],
	})
	remains := c.backend.Remains(c.definitionOptions)
	collector := garbagecollector.New(c.metadata, c.kube, c.discovery, c.informers.Existing, quotas, mounts, labels, cached)
	c.collector.Store(collector)
	defer c.collector.Store(nil)
	ctx = runner.WithPayer(ctx, inflight.Payer(set.LogicalClusters))
	var running sync.WaitGroup
	defer running.Wait()
	for _, ctl := range []interface{ Run(context.Context) }{
		serviceaccount.New(set, c.kube),
		rootca.New(set, c.kube, ca),
		serviceaccounttoken.New(set, c.kube, c.secretIssuer, ca),
		clusterroleaggregation.New(set, c.kube),
		customresourcedefinition.New(customresourcedefinition.Inputs{
			Set: set, Definitions: c.definitions.CustomResourceDefinitions(), Metadata: c.metadata, Remains: remains, Serves: c.custom.List, BuiltIn: c.discovery.BuiltinNames,
		}),
		namespace.New(set, c.kube, c.metadata, c.discovery.Resources, c.backend.Held),
		logicalcluster.New(logicalcluster.Inputs{
			Set: set, Metadata: c.metadata, Resources: c.discovery.Resources, Held: c.backend.Held, ExternalURL: c.opts.ShardExternalURL,
			Serves: c.custom.List, Remains: remains,
			Clusters: c.stored["logicalclusters"], Workspaces: c.stored["workspaces"],
		}),
		workspace.New(workspace.Inputs{Set: set, Scheduler: c.scheduler, Clusters: c.stored["logicalclusters"], Workspaces: c.stored["workspaces"]}),
		workspacetype.New(set, c.dynamic),
		apiexport.New(apiexport.Inputs{Set: set, Kube: c.kube, Dynamic: c.dynamic, Exports: c.stored["apiexports"]}),
		apibinding.New(apibinding.Inputs{
			Set: set, Exports: c.exports, Defaults: c.defaultBindings, Serves: c.custom.List, BuiltIn: c.discovery.BuiltinNames, Resources: c.discovery.Resources, Metadata: c.metadata,
			Remains: remains, Bindings: c.stored["apibindings"], Schemas: c.stored["apiresourceschemas"], Conversions: c.stored["apiconversions"], Clusters: c.stored["logicalclusters"],
		}),
		endpointslice.ForExports(endpointslice.Inputs{
			Set: set, Exports: c.exports, Slices: c.stored["apiexportendpointslices"], ShardName: c.opts.ShardName,
		}),
		endpointslice.ForCachedResources(endpointslice.Inputs{
			Set: set, Exports: c.exports, Slices: c.stored["clustercachedresourceendpointslices"], ShardName: c.opts.ShardName,
		}, c.cached),
		cached,
		boundschemas.New(boundschemas.Inputs{
			Set: set, Schemas: c.stored["apiresourceschemas"], Conversions: c.stored["apiconversions"], Clock: clock.RealClock{},
		}),
		partitionset.New(partitionset.Inputs{Set: set, Dynamic: c.dynamic, Sets: c.stored["partitionsets"]}),
		validatingadmissionpolicystatus.New(validatingadmissionpolicystatus.Inputs{
			Set: set, Kube: c.kube, Schemas: c.schemas, RESTMapper: c.restMapper,
		}),
		certificates.New(set, c.kube, clock.RealClock{}),
		certificates.NewSigner(set, c.kube, c.clientCertificates),
		quotas,
		mounts,
		labels,
		collector,
	} {
		running.Go(func() { ctl.Run(ctx) })
	}
}

// resourcesChanged tells the controllers, if they run here, that other resources are served than before.
func (c *config) resourcesChanged() {
	if collector := c.collector.Load(); collector != nil {
		collector.ResourcesChanged()
	}
}
