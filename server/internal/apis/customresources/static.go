package customresources

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// Static is a definition that every cluster has and that does not change.
type Static struct {
	CRD *apiextensionsv1.CustomResourceDefinition
	// Options returns the storage of the objects.
	Options generic.RESTOptionsGetter
	// ReadOnly objects support get, list and watch.
	ReadOnly bool
	// StatusOnly objects are ReadOnly except for their status.
	StatusOnly bool
}

// NewStatic returns a handler of definitions whose objects are not stored in etcd. Authorizer decides whether a client may
// create the object that it applies.
func NewStatic(az authorizer.UnconditionalAuthorizer, definitions []Static) (*Handler, error) {
	h := &Handler{config: Config{
		Authorizer: az, Admission: admission.NewChainHandler(),
		ServiceResolver: outbound.NoServices{},
		AuthResolver:    webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, &rest.Config{}, noop.NewTracerProvider()),
		RequestTimeout:  staticRequestTimeout, MinRequestTimeout: staticWatchTimeout, MaxRequestBodyBytes: staticMaxBody,
		Live: func(_ context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
			return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
		},
	}}
	h.registry = newRegistry(nil)
	for _, s := range definitions {
		err := h.registry.addSystem(Establish(s.CRD), func(d *Definition) (http.Handler, error) {
			c := h.config
			c.Options = s.Options
			return h.compile(d, c)
		})
		if err != nil {
			return nil, err
		}
		added := h.registry.system[ResourceName(s.CRD.Spec.Names.Plural, s.CRD.Spec.Group)]
		added.readOnly, added.statusOnly = s.ReadOnly, s.StatusOnly
	}
	return h, nil
}

// Limits of requests, the same as in API servers.
const (
	staticRequestTimeout = time.Minute
	staticWatchTimeout   = 30 * time.Minute
	staticMaxBody        = 3 << 20
)

// Establish returns a definition in the state in which its cluster serves it.
func Establish(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	apiextensionsapiserver.Scheme.Default(crd)
	crd.Status.AcceptedNames = crd.Spec.Names
	if crd.Status.AcceptedNames.Singular == "" {
		crd.Status.AcceptedNames.Singular = strings.ToLower(crd.Spec.Names.Kind)
	}
	return crd
}
