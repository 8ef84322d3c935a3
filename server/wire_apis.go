package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kcplane/kcp/server/internal/apis/builtin"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/apis/openapi"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/views/apiexport"
	"github.com/kcplane/kcp/server/internal/views/replication"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// install returns upstream's server with the built-in types, CustomResourceDefinitions and custom resources, and fills served.
func (s *server) install(slices replication.Config, reviews authenticator.Request) (*genericapiserver.GenericAPIServer, error) {
	completed := s.up.controlPlane.Complete()
	kube, err := completed.New("kcp", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	// Upstream responds with the list of all paths.
	kube.GenericAPIServer.Handler.NonGoRestfulMux.NotFoundHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
			r.URL.Path+" is not a path of this server", 0, true)
		responsewriters.ErrorNegotiated(status, s.up.generic.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
	}))
	root, err := s.clients.in(logicalcluster.Root)
	if err != nil {
		return nil, err
	}
	if err := kube.InstallAPIs(builtin.Providers(completed, s.authz.rules, reviews, root.Discovery(), &s.served.registries)...); err != nil {
		return nil, fmt.Errorf("installing the built-in types: %w", err)
	}
	return kube.GenericAPIServer, s.installDefinitions(kube.GenericAPIServer, slices)
}

// installDefinitions serves CustomResourceDefinitions and custom resources.
func (s *server) installDefinitions(g *genericapiserver.GenericAPIServer, slices replication.Config) error {
	reserved := sets.New[schema.GroupResource]()
	info, live, err := s.definitionStorage(reserved)
	if err != nil {
		return err
	}
	if err := g.InstallAPIGroup(info); err != nil {
		return fmt.Errorf("installing %s: %w", apiextensions.GroupName, err)
	}
	custom, err := s.newCustomResources(live, info)
	if err != nil {
		return err
	}
	custom.OnChange(s.served.resourcesChanged)
	s.backend.Identify(custom.Identity)
	d, err := discovery.New(g.AggregatedLegacyDiscoveryGroupManager, g.AggregatedDiscoveryGroupManager, custom)
	if err != nil {
		return err
	}
	reserved.Insert(d.Builtin().UnsortedList()...)
	reserved.Insert(customresources.SystemResources(s.tenancy.systemDefinitions)...)

	v := s.served
	v.custom, v.discovery, v.builtin = custom, d, d.Builtin()
	v.openapi = openapi.New(custom, v.staticOpenAPI.Load)
	v.documents = d.WithDiscovery(v.openapi.WithOpenAPI(v.api))
	v.sliceDocuments = discovery.Of(slices.Shown).WithDiscovery(openapi.Of(slices.Shown).WithOpenAPI(openapi.NoBuiltIn))
	inViews := apiexport.CustomResources(s.tenancy.exports, custom.List)
	ofViews := d.ForViews(apiexport.Claimed(s.tenancy.exports), inViews)
	v.exportDocuments = ofViews.WithDiscovery(openapi.ForViews(inViews, ofViews.BuiltinVersions).WithOpenAPI(v.api))
	return nil
}

// liveDefinition reads a definition from storage.
type liveDefinition func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)

// definitionStorage returns the API group of CustomResourceDefinitions. It refuses definitions of reserved resources.
func (s *server) definitionStorage(reserved sets.Set[schema.GroupResource]) (*genericapiserver.APIGroupInfo, liveDefinition, error) {
	storages, definitions,
		err := customresources.DefinitionStorage(s.backend.BuiltIn(s.up.definitionOptions), reserved, customresources.DerivedDefinitions{
		On: s.tenancy.derivesDefinitions, Handler: func() *customresources.Handler { return s.served.custom },
	})
	if err != nil {
		return nil, nil, err
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, apiextensionsapiserver.Scheme, metav1.ParameterCodec,
		apiextensionsapiserver.Codecs)
	info.VersionedResourcesStorageMap["v1"] = storages
	builtin.OnlyServedVersions(&info)
	return &info, func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		obj, err := definitions.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		return crd, apiextensionsapiserver.Scheme.Convert(obj, crd, nil)
	}, nil
}

func (s *server) newCustomResources(live liveDefinition, info *genericapiserver.APIGroupInfo) (*customresources.Handler, error) {
	elsewhere, err := newEndpoints(s.opts, s.tenancy, s.clients, s.served, s.installation)
	if err != nil {
		return nil, err
	}
	set, g, options := s.tenancy.set, s.up.generic, s.up.definitionOptions
	return customresources.New(customresources.Config{
		Mirrors:     s.installation.published(),
		Definitions: set.CustomResourceDefinitions, Live: live, Options: s.tenancy.scheduler.Options(s.backend.Custom(options)),
		Exports: set.APIExports, Schemas: set.APIResourceSchemas, Conversions: set.APIConversions, Bindings: set.APIBindings,
		System: s.tenancy.exports.System(), Cached: s.tenancy.cached, Endpoints: elsewhere, LiveBindings: s.tenancy.exports.StoredBindingsIn,
		Versions: s.backend.Versions, AllOptions: s.backend.All(options),
		BoundOptions: func(identity string) generic.RESTOptionsGetter { return s.backend.Bound(options, identity) },
		Admission:    g.AdmissionControl, Authorizer: g.Authorization.Authorizer,
		ServiceResolver:   outbound.NoServices{},
		AuthResolver:      s.calls.Webhooks(customresources.ConversionLimits, g.TracerProvider),
		StaticModels:      info.StaticOpenAPISpec,
		RequestTimeout:    g.RequestTimeout,
		MinRequestTimeout: time.Duration(g.MinRequestTimeout) * time.Second, MaxRequestBodyBytes: g.MaxRequestBodyBytes,
	})
}
