package server

import (
	"context"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/defaultcontent"
	"github.com/kcplane/kcp/server/internal/request/freshness"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

// tenancy contains the parts that resolve and create logical clusters and workspaces, and the APIs that they share.
type tenancy struct {
	informers *informers.Factory
	set       *informers.Set
	// stored is the storage that the server uses without requests, by resource.
	stored map[string]*storage.Typed
	// sources have the stored objects of built-in types, by Go type.
	sources map[reflect.Type]*storage.Source
	tree    *pathindex.Index
	types   *workspacetypes.Types
	// references finds what objects refer to, also on other shards.
	references *references.References
	exports    *exports.Exports
	cached     *cachedresources.Resources
	scheduler  *scheduling.Scheduler
	defaults   exports.Defaults
	// systemDefinitions are the definitions of the resources of kcp.
	systemDefinitions []*apiextensionsv1.CustomResourceDefinition
}

// newTenancy returns the informers, and the parts that follow them. Informers read the storage directly, without requests to the server
// itself.
func newTenancy(opts options.Completed, backend *storage.Backend, up *upstream) (*tenancy, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme,
		cachev1alpha1.AddToScheme, migrationv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	t := &tenancy{
		informers: informers.NewFactory(), stored: map[string]*storage.Typed{}, sources: map[reflect.Type]*storage.Source{},
	}
	t.informers.Acknowledge(func(resource schema.GroupResource) informers.Acknowledged { return backend.Acknowledged(resource) })
	readStored := func(kind informers.Kind, find findStored) {
		if !opts.Sharding.Enabled() { // other shards learn what the informers have
			t.informers.ReadStored(kind.Resource, storedObjects{backend, kind.Example, find})
		}
	}
	for _, kind := range informers.Kinds() {
		name := reflect.TypeOf(kind.Example).Elem().Name()
		if !kind.Stored {
			source, err := builtInSource(backend, up, kind.Resource, name)
			if err != nil {
				return nil, err
			}
			t.informers.From(kind.Resource, source)
			t.sources[reflect.TypeOf(kind.Example)] = source
			readStored(kind, source.Find)
			continue
		}
		stored, err := backend.Typed(up.definitionOptions, kind.Resource, scheme, name, name+"List")
		if err != nil {
			return nil, err
		}
		t.stored[kind.Resource.Resource] = stored
		t.informers.From(kind.Resource, stored)
		readStored(kind, stored.Find)
	}
	var err error
	if t.set, err = informers.NewSet(t.informers); err != nil {
		return nil, err
	}
	t.set.ConfigMaps.Know(string(up.rootCA))
	t.tree = pathindex.New(t.set)
	t.references = references.New(t.set, t.tree)
	t.types = workspacetypes.New(t.set, t.tree)
	t.types.Share(t.references)
	if t.systemDefinitions, err = customresources.SystemDefinitions(); err != nil {
		return nil, err
	}
	if t.exports, err = exports.New(t.set, t.tree, exports.SystemOf(customresources.SystemResources(t.systemDefinitions)),
		t.stored["apibindings"]); err != nil {
		return nil, err
	}
	if t.cached, err = cachedresources.New(t.set, t.exports); err != nil {
		return nil, err
	}
	t.scheduler = &scheduling.Scheduler{
		Clusters: t.stored["logicalclusters"], LogicalClusters: t.set.LogicalClusters, Shards: t.set.Shards, Tree: t.tree, Types: t.types,
		ShardName: opts.ShardName, ExternalURL: opts.ShardExternalURL,
	}
	t.scheduler.Follow(t.set)
	t.defaults = exports.Defaults{Exports: t.exports, Types: t.types, References: t.references}
	return t, nil
}

// findStored reads a stored object of a logical cluster into out: see storage.Typed.
type findStored func(ctx context.Context, namespace, name string, out runtime.Object) (found bool, err error)

// storedObjects is an informers.Stored.
type storedObjects struct {
	*storage.Backend
	example runtime.Object
	find    findStored
}

// Read implements informers.Stored. Parts of keys can be from the URL of any request: what cannot be the name of an object does not exist.
func (s storedObjects) Read(ctx context.Context, key informers.Key) (runtime.Object, error) {
	if !logicalcluster.ValidPath(string(key.Cluster)) || !isSegment(key.Name) || key.Namespace != "" && !isSegment(key.Namespace) {
		return nil, nil
	}
	out := s.example.DeepCopyObject()
	if found, err := s.find(logicalcluster.WithName(ctx, key.Cluster), key.Namespace, key.Name, out); !found {
		return nil, err
	}
	return out, nil
}

func isSegment(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

// builtInSource returns the stored objects of a type of Kubernetes.
func builtInSource(backend *storage.Backend, up *upstream, resource schema.GroupVersionResource, kind string) (*storage.Source, error) {
	if resource.Group == apiextensionsv1.GroupName {
		return backend.Source(backend.BuiltIn(up.definitionOptions), resource, kind, apiextensionsapiserver.Scheme,
			apiextensionsapiserver.Codecs)
	}
	return backend.Source(up.generic.RESTOptionsGetter, resource, kind, legacyscheme.Scheme, legacyscheme.Codecs)
}

// defaultStorages returns the storages of the types of default objects.
func (t *tenancy) defaultStorages() map[reflect.Type]defaultcontent.Storage {
	storages := map[reflect.Type]defaultcontent.Storage{}
	for kind, source := range t.sources {
		storages[kind] = source
	}
	return storages
}

// defaultBindings returns the default APIBindings of a logical cluster, with the labels that admission would set.
func (t *tenancy) defaultBindings(lc *corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding {
	bindings := t.defaults.Of(lc)
	for _, b := range bindings {
		b.Labels = claims.RequiredLabelsOfBinding(t.exports, logicalcluster.Of(lc), b)
	}
	return bindings
}

// derivesDefinitions reports whether a logical cluster shows CustomResourceDefinitions of its bound resources.
func (t *tenancy) derivesDefinitions(cluster logicalcluster.Name) bool {
	lc, err := t.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	return err == nil && t.types.DerivesDefinitions(lc)
}

// decisive returns the informers that authorization and the resolution of logical clusters use.
func (t *tenancy) decisive() []freshness.Informer {
	return []freshness.Informer{
		informers.LookUps{Informer: t.set.LogicalClusters.Informer}, informers.LookUps{Informer: t.set.Workspaces.Informer},
		t.set.WorkspaceTypes.Informer,
		t.set.WorkspaceAuthenticationConfigurations.Informer,
		t.set.ClusterRoles.Informer, t.set.ClusterRoleBindings.Informer, t.set.Roles.Informer, t.set.RoleBindings.Informer,
		t.set.APIExports.Informer, t.set.APIBindings.Informer,
	}
}
