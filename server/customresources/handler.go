package customresources

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Config is what custom resources are served with.
type Config struct {
	// Definitions of all clusters; their informer must not run yet.
	Definitions informers.Lister[*apiextensionsv1.CustomResourceDefinition]
	// Live reads one definition of the context's cluster consistently.
	Live func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// Options places the objects in storage.
	Options generic.RESTOptionsGetter

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
	// metadata holds the definitions that serve all versions of a resource as metadata only, by resource and version.
	metadata *metadataDefinitions
}

// New returns a handler that follows the definitions of config.
func New(config Config) (*Handler, error) {
	h := &Handler{config: config}
	h.registry = newRegistry(h.compile)
	h.metadata = newMetadataDefinitions(h.compile)
	system, err := systemDefinitions()
	if err != nil {
		return nil, err
	}
	for _, crd := range system {
		if err := h.registry.addSystem(crd); err != nil {
			return nil, err
		}
	}
	h.registry.watch(config.Definitions.Informer)
	return h, nil
}

// List returns what a cluster serves.
func (h *Handler) List(cluster logicalcluster.Name) []Installed { return h.registry.list(cluster) }

// Distinct returns every definition that some cluster serves, once.
func (h *Handler) Distinct() []*Definition { return h.registry.distinct() }

// OnChange calls f after every change of what some cluster serves. f must not block.
func (h *Handler) OnChange(f func()) { h.registry.onChange(f) }

// compile builds upstream's handler for a definition.
func (h *Handler) compile(d *Definition) (http.Handler, error) {
	c := h.config
	return apiextensionsapiserver.NewCustomResourceDefinitionHandler(nil, nil, d, http.HandlerFunc(notServed), c.Options, c.Admission, nil,
		c.ServiceResolver, c.AuthResolver, 1, c.Authorizer, c.RequestTimeout, c.MinRequestTimeout, c.StaticModels, c.MaxRequestBodyBytes)
}

// How often and how long a request looks for the event of a definition that is stored already.
const (
	eventPoll    = 5 * time.Millisecond
	eventTimeout = 5 * time.Second
)

// ServeHTTP serves the resource of the request's RequestInfo in the cluster of its context.
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
	d, err := h.definitionFor(r, cluster, info)
	if err != nil {
		fail(w, r, err)
		return
	}
	if d == nil || d.CRD.Spec.Group != info.APIGroup {
		notServed(w, r)
		return
	}
	handler, err := d.compiled()
	if err != nil {
		fail(w, r, apierrors.NewInternalError(fmt.Errorf("definition of %s.%s: %w", info.Resource, info.APIGroup, err)))
		return
	}
	handler.ServeHTTP(w, r)
}

func (h *Handler) definitionFor(r *http.Request, cluster logicalcluster.Cluster, info *request.RequestInfo) (*Definition, error) {
	key := ResourceName(info.Resource, info.APIGroup)
	if cluster.Wildcard {
		return h.wildcard(r, key, info)
	}
	installed, ok := h.registry.get(cluster.Name, key)
	if !ok {
		var err error
		if installed, ok, err = h.live(r.Context(), key); err != nil || !ok {
			return nil, err
		}
	}
	if installed.Terminating && info.Verb == "create" && info.Subresource == "" {
		err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
		err.ErrStatus.Message = fmt.Sprintf("create not allowed while the definition %s is terminating", key)
		return nil, err
	}
	return installed.Definition, nil
}

// live finds a definition that was established a moment ago: it waits for its event, which is on its way.
func (h *Handler) live(ctx context.Context, key string) (Installed, bool, error) {
	crd, err := h.config.Live(ctx, key)
	if apierrors.IsNotFound(err) || (err == nil && !served(crd)) {
		return Installed{}, false, nil
	}
	if err != nil {
		return Installed{}, false, err
	}
	var installed Installed
	var ok bool
	err = wait.PollUntilContextTimeout(ctx, eventPoll, eventTimeout, true, func(context.Context) (bool, error) {
		installed, ok = h.registry.get(logicalcluster.Of(crd), key)
		return ok, nil
	})
	if wait.Interrupted(err) {
		return Installed{}, false, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable", key))
	}
	return installed, ok, err
}

// wildcard finds what serves a resource of all clusters: a definition that every cluster has, or for clients that ask
// for nothing but metadata, one that covers whatever the clusters' definitions are.
func (h *Handler) wildcard(r *http.Request, key string, info *request.RequestInfo) (*Definition, error) {
	if d, ok := h.registry.system[key]; ok {
		return d, nil
	}
	some, ok := h.registry.anywhere(key)
	if !ok {
		return nil, nil
	}
	if !asksForMetadata(r) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"%s has different definitions in different logical clusters: across all of them it is served as PartialObjectMetadata only", key))
	}
	return h.metadata.get(some.CRD, info.APIVersion), nil
}

// asksForMetadata tells whether every representation that the client accepts is metadata only.
func asksForMetadata(r *http.Request) bool {
	for _, accepted := range strings.Split(r.Header.Get("Accept"), ",") {
		_, parameters, err := mime.ParseMediaType(accepted)
		if err == nil && strings.HasPrefix(parameters["as"], "PartialObjectMetadata") {
			return true
		}
		break
	}
	return false
}

// metadataSchema accepts every object.
func metadataSchema() *apiextensionsv1.CustomResourceValidation {
	return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: ptr.To(true),
	}}
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
