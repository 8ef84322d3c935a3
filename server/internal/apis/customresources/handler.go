package customresources

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/kube-openapi/pkg/validation/spec"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/conversion"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/cancellation"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Config contains the inputs of a Handler.
type Config struct {
	// Definitions are those of all clusters; their informer must not run yet.
	Definitions informers.Lister[*apiextensionsv1.CustomResourceDefinition]
	// Live reads one definition of the context's cluster with a consistent read.
	Live func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// LiveBindings reads the APIBindings of a cluster with a consistent read.
	LiveBindings func(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error)
	// Versions reads the resource versions of the stored objects of a resource in the context's cluster, by name, and the
	// current one. Nil means that events have no delay.
	Versions func(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error)
	// Exports, Schemas, Conversions and Bindings are those of all clusters; their informers must not run yet.
	Exports     informers.Lister[*apisv1alpha2.APIExport]
	Schemas     informers.Lister[*apisv1alpha1.APIResourceSchema]
	Conversions informers.Lister[*apisv1alpha1.APIConversion]
	Bindings    informers.Lister[*apisv1alpha2.APIBinding]
	// Cached resolves the sources of virtual resources; nil if there are none.
	Cached *cachedresources.Resources
	// Endpoints resolves virtual resources whose objects are in virtual workspaces; nil if there are none.
	Endpoints Endpoints
	// Mirrors have the objects of virtual resources whose provider is on another shard; nil if there are no other shards.
	Mirrors Mirrors
	// System are the resources of the server that exports in root represent.
	System exports.System
	// Options stores the objects, BoundOptions stores those of a bound API below its identity, and AllOptions reads the objects
	// of a resource under every identity.
	Options, AllOptions generic.RESTOptionsGetter
	BoundOptions        func(identity string) generic.RESTOptionsGetter

	Admission           admission.Interface
	Authorizer          authorizer.UnconditionalAuthorizer
	ServiceResolver     webhook.ServiceResolver
	AuthResolver        webhook.AuthenticationInfoResolverWrapper
	StaticModels        map[string]*spec.Schema
	RequestTimeout      time.Duration
	MinRequestTimeout   time.Duration
	MaxRequestBodyBytes int64
}

// Handler serves custom resources.
type Handler struct {
	config   Config
	registry *registry
	metadata *metadataDefinitions
	// watches end when their definition is replaced, because they would continue to deliver objects pruned and converted by
	// the old schema. Clients then list and watch again, as after any broken connection.
	watches cancellation.Requests[watched]
}

// watched is a resource, by Key, of a cluster or of all clusters.
type watched struct {
	cluster logicalcluster.Cluster
	key     string
}

// New returns a handler that watches the definitions of config.
func New(config Config) (*Handler, error) {
	h := &Handler{config: config}
	h.registry = newRegistry(func(d *Definition) (http.Handler, error) {
		c := config
		if d.Identity != "" {
			c.Options = config.BoundOptions(d.Identity)
		}
		if d.IsVirtual() {
			c.Options = virtualOptions{c.Options, h, d}
		}
		c.AuthResolver = h.authResolver(d)
		return h.compile(d, c)
	})
	h.metadata = newMetadataDefinitions(func(d *Definition) (http.Handler, error) {
		kind := schema.GroupVersionKind{Group: d.CRD.Spec.Group, Version: d.CRD.Spec.Versions[0].Name, Kind: d.CRD.Spec.Names.Kind}
		c := config
		c.Options = metadataOnly{RESTOptionsGetter: config.AllOptions, kind: kind}
		return h.compile(d, c)
	})
	h.registry.moved = func(cluster logicalcluster.Name, key string) {
		h.watches.End(watched{logicalcluster.Cluster{Name: cluster}, key})
	}
	h.registry.forgotten = func(key string) {
		h.metadata.forget(key)
		h.watches.End(watched{logicalcluster.Cluster{Wildcard: true}, key})
	}
	system, err := SystemDefinitions()
	if err != nil {
		return nil, err
	}
	compileSystem := func(d *Definition) (http.Handler, error) {
		c := config
		c.AuthResolver = converter(func(_ context.Context, in *unstructured.Unstructured,
			to schema.GroupVersion) (*unstructured.Unstructured, error) {
			return conversion.Convert(in, to)
		}).resolver
		return h.compile(d, c)
	}
	for _, crd := range system {
		if err := h.registry.addSystem(crd, compileSystem); err != nil {
			return nil, err
		}
	}
	if config.Cached != nil {
		config.Cached.OnChange(func(p cachedresources.Part) { h.watches.End(watchedPart(p)) })
	}
	h.registry.watch(config.Definitions.Informer)
	h.registry.conversions = config.Conversions
	h.registry.isSystemResource = config.System.IsSystemResource
	h.registry.followExports(config.Exports, config.Schemas)
	h.registry.followBindings(config.Bindings.Informer, config.Schemas)
	return h, nil
}

// authResolver returns the authentication for the conversion webhook of a definition, or its replacement.
func (h *Handler) authResolver(d *Definition) webhook.AuthenticationInfoResolverWrapper {
	if d.rules != nil {
		return byRules(d.CRD, d.rules).resolver
	}
	return h.config.AuthResolver
}

// List returns the definitions that a cluster serves, sorted by name. Without a cluster it returns those that every
// cluster serves.
func (h *Handler) List(cluster logicalcluster.Name) []Installed { return h.registry.list(cluster) }

// Serves reports whether a cluster serves a resource.
func (h *Handler) Serves(cluster logicalcluster.Name, resource schema.GroupResource) bool {
	_, ok := h.registry.get(cluster, ResourceName(resource.Resource, resource.Group))
	return ok
}

// Distinct returns each definition that any cluster serves, once.
func (h *Handler) Distinct() []*Definition { return h.registry.distinct() }

// IsSystem reports whether a resource has a system definition.
func (h *Handler) IsSystem(resource schema.GroupResource) bool {
	_, ok := h.registry.system[ResourceName(resource.Resource, resource.Group)]
	return ok
}

// OnChange calls f after every change of the resources of any cluster. f must not block.
func (h *Handler) OnChange(f func()) { h.registry.onChange(f) }

// compile builds upstream's handler for a definition.
func (h *Handler) compile(d *Definition, c Config) (http.Handler, error) {
	passedOn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.informer.isRemoved() { // closed between the lookup and now: another definition may exist
			h.ServeHTTP(w, r)
			return
		}
		notServed(w, r)
	})
	guard := createGuard{c.Admission, weightsOf(d.CRD)}
	var admit admission.Interface = guard
	az, options := c.Authorizer, c.Options
	core := d.CRD.Spec.Group == ""
	if core {
		admit, az, options = coreAdmission{guard}, coreAuthorizer{az}, coreOptions{options}
	}
	options = readOrdinary(options, d.CRD)
	if !d.system {
		options = keepServersMetadata(options, d.CRD)
	}
	handler, err := apiextensionsapiserver.NewCustomResourceDefinitionHandler(nil, nil, d, passedOn, options, admit, nil,
		c.ServiceResolver, c.AuthResolver, 1, az, c.RequestTimeout, c.MinRequestTimeout, c.StaticModels, c.MaxRequestBodyBytes)
	if err != nil {
		return nil, err
	}
	if d.system {
		if err := acceptQuickly(handler, d.CRD); err != nil {
			return nil, err
		}
	}
	served := http.Handler(handler)
	if core {
		served = coreHandler{handler, c.MaxRequestBodyBytes}
	}
	return mediaTypes{inner: served, group: d.CRD.Spec.Group, kind: d.CRD.Spec.Names.Kind, limit: c.MaxRequestBodyBytes}, nil
}

// ServeHTTP serves the resource in the request's RequestInfo, in the cluster of its context.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		notServed(w, r)
		return
	}
	cluster, ok := logicalcluster.From(r.Context())
	if !ok {
		fail(w, r, apierrors.NewInternalError(logicalcluster.ErrMissing))
		return
	}
	_, claimed := identityFrom(r.Context())
	r, ok = withNamedIdentity(r, info)
	if !ok {
		notServed(w, r)
		return
	}
	key := ResourceName(info.Resource, info.APIGroup)
	if info.Verb == "watch" {
		target := cluster
		if view, ok := viewFrom(r.Context()); ok {
			target = logicalcluster.Cluster{Name: view}
		}
		ctx, end := h.watches.Begin(r.Context(), watched{target, key})
		defer end()
		r = r.WithContext(ctx)
	}
	installed, err := h.find(r, cluster, key, info, claimed)
	if err != nil {
		fail(w, r, err)
		return
	}
	if installed.Definition == nil || installed.CRD.Spec.Group != info.APIGroup {
		notServed(w, r)
		return
	}
	if installed.IsVirtual() && isForwarded(info) {
		h.forward(w, r, installed, info)
		return
	}
	if installed.IsVirtual() && isDeletion(info) {
		h.delete(w, r, installed.Definition, info)
		return
	}
	if !installed.CanBeWritten(info.Subresource) && !isRead(info.Verb) {
		fail(w, r, readOnly(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb))
		return
	}
	if installed.IsVirtual() {
		if r, err = withHops(r); err != nil {
			fail(w, r, apierrors.NewInternalError(err))
			return
		}
	}
	if installed.Terminating {
		r = r.WithContext(withTerminating(r.Context()))
	}
	if installed.exceeds != nil {
		fail(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is not served: its definition exceeds the limits of this server: %v",
			key, installed.exceeds)))
		return
	}
	handler, err := installed.compiled()
	if err != nil {
		fail(w, r, apierrors.NewInternalError(fmt.Errorf("definition of %s: %w", key, err)))
		return
	}
	handler.ServeHTTP(w, r)
}

// find returns the definition that serves a request, empty if none does. The view authorized requests for claimed
// resources.
func (h *Handler) find(r *http.Request, cluster logicalcluster.Cluster, key string, info *request.RequestInfo,
	claimed bool) (Installed, error) {
	if view, ok := viewFrom(r.Context()); ok {
		installed, _ := h.registry.get(view, key)
		return installed, nil
	}
	identity, identified := identityFrom(r.Context())
	d, system := h.systemUnder(key, identity)
	system = system && servedIn(key, cluster.Name)
	switch {
	case cluster.Wildcard && identified && !system:
		d, _ = h.registry.identified(key, identity, info.APIVersion)
		return Installed{Definition: d}, nil
	case cluster.Wildcard:
		d, err := h.wildcard(r, key, info)
		return Installed{Definition: d}, err
	case system:
		return Installed{Definition: d}, nil
	}
	installed, ok := h.registry.get(cluster.Name, key)
	if !ok {
		var err error
		if installed, err = h.live(r.Context(), cluster.Name, key); err != nil {
			return Installed{}, err
		}
	}
	if installed.Binding != "" && !claimed && h.arrivedBeforeBinding(r.Context(), installed) {
		if err := h.authorizeAgain(r.Context()); err != nil {
			return Installed{}, err
		}
	}
	if identified && (installed.Definition == nil || installed.Identity != identity) {
		return Installed{}, nil
	}
	return installed, nil
}

// wildcard returns the definition that serves a resource across all clusters: a system definition, or, for clients
// that request only metadata, a definition that covers the definitions of all clusters.
func (h *Handler) wildcard(r *http.Request, key string, info *request.RequestInfo) (*Definition, error) {
	if info.Verb != "list" && info.Verb != "watch" {
		err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
		err.ErrStatus.Message = fmt.Sprintf("%s: only list and watch are supported for logical cluster %q; use the name of one "+
			"logical cluster", key, "*")
		return nil, err
	}
	if d, ok := h.registry.system[key]; ok {
		return d, nil
	}
	some, ok := h.registry.anywhere(key, info.APIVersion)
	if !ok {
		return nil, nil
	}
	if !asksForMetadata(r) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"%s can have different definitions in different logical clusters: across all of them, only PartialObjectMetadata is served", key))
	}
	d := h.metadata.get(some.CRD, info.APIVersion)
	if _, ok := h.registry.anywhere(key, info.APIVersion); !ok { // removed in the meantime: forget will not be called for d again
		h.metadata.forget(key)
		return nil, nil
	}
	return d, nil
}

func notServed(w http.ResponseWriter, r *http.Request) {
	message := "the server could not find the requested resource"
	err := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", message, 0, true)
	err.ErrStatus.Message = message
	fail(w, r, err)
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	gv := schema.GroupVersion{}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, apiextensionsapiserver.Codecs, gv, w, r)
}
