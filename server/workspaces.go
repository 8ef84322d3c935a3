package server

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/controllers/rootca"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/informers/transform"
	"github.com/kcplane/kcp/server/internal/request/defaultcontent"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// buildWorkspaces makes the informers, and what knows and makes workspaces. The types of which there is one object or
// more for every workspace are read from storage directly, without a request to the server itself.
func (c *config) buildWorkspaces(scheme *runtime.Scheme) error {
	c.stored = map[string]*storage.Typed{}
	for _, t := range []struct {
		group          schema.GroupVersion
		resource, kind string
		source         informers.Source
	}{
		{corev1alpha1.SchemeGroupVersion, "logicalclusters", "LogicalCluster", informers.Source{Packed: transform.LogicalCluster}},
		{corev1alpha1.SchemeGroupVersion, "shards", "Shard", informers.Source{}},
		{tenancyv1alpha1.SchemeGroupVersion, "workspaces", "Workspace", informers.Source{Packed: transform.Workspace}},
		{tenancyv1alpha1.SchemeGroupVersion, "workspacetypes", "WorkspaceType", informers.Source{}},
		{tenancyv1alpha1.SchemeGroupVersion, "workspaceauthenticationconfigurations", "WorkspaceAuthenticationConfiguration", informers.Source{}},
		{apisv1alpha2.SchemeGroupVersion, "apiexports", "APIExport", informers.Source{}},
		{apisv1alpha2.SchemeGroupVersion, "apibindings", "APIBinding", informers.Source{}},
		{apisv1alpha1.SchemeGroupVersion, "apiresourceschemas", "APIResourceSchema", informers.Source{}},
		{apisv1alpha1.SchemeGroupVersion, "apiexportendpointslices", "APIExportEndpointSlice", informers.Source{}},
		{apisv1alpha1.SchemeGroupVersion, "apiconversions", "APIConversion", informers.Source{}},
		{cachev1alpha1.SchemeGroupVersion, "clustercachedresources", "ClusterCachedResource", informers.Source{}},
		{cachev1alpha1.SchemeGroupVersion, "clustercachedresourceendpointslices", "ClusterCachedResourceEndpointSlice", informers.Source{}},
		{topologyv1alpha1.SchemeGroupVersion, "partitions", "Partition", informers.Source{}},
		{topologyv1alpha1.SchemeGroupVersion, "partitionsets", "PartitionSet", informers.Source{}},
	} {
		resource := t.group.WithResource(t.resource)
		s, err := c.backend.Typed(c.definitionOptions, resource, scheme, t.kind, t.kind+"List")
		if err != nil {
			return err
		}
		c.stored[t.resource] = s
		t.source.ListerWatcher = s
		c.informers.From(resource, t.source)
	}
	var err error
	if c.set, err = informers.NewSet(c.informers); err != nil {
		return err
	}
	c.set.APIBindings.SetTransform(transform.New().APIBinding)
	c.set.ConfigMaps.SetTransform(transform.New().ConfigMap(rootca.Name))
	c.tree = pathindex.New(c.set)
	c.types = workspacetypes.New(c.set, c.tree)
	if c.systemDefinitions, err = customresources.SystemDefinitions(); err != nil {
		return err
	}
	if c.exports, err = exports.New(c.set, c.tree, exports.SystemOf(customresources.SystemResources(c.systemDefinitions)), c.stored["apibindings"]); err != nil {
		return err
	}
	if c.cached, err = cachedresources.New(c.set, c.exports); err != nil {
		return err
	}
	c.scheduler = &scheduling.Scheduler{
		Clusters: c.stored["logicalclusters"], LogicalClusters: c.set.LogicalClusters, Shards: c.set.Shards, Tree: c.tree, Types: c.types,
		ShardName: c.opts.ShardName, ExternalURL: c.opts.ShardExternalURL,
	}
	c.scheduler.Follow(c.set)
	ca := c.rootCA()
	c.defaults = exports.Defaults{Exports: c.exports, Types: c.types}
	c.entry = &defaultcontent.Entry{Set: c.set, Creator: &c.registries, CA: ca, Bindings: c.defaultBindings, Stored: c.stored["apibindings"]}
	return nil
}

// defaultBindings returns what a cluster binds from the beginning, with the labels that admission would write.
func (c *config) defaultBindings(lc *corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding {
	bindings := c.defaults.Of(lc)
	for _, b := range bindings {
		b.Labels = claims.WantedOfBinding(c.exports, logicalcluster.Of(lc), b)
	}
	return bindings
}
