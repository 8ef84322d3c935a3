package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/internal/apis/builtin"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/apis/openapi"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// served is the content that the server serves. It is the only late-bound part: upstream creates authentication, admission and the handler
// chain before the REST storage, therefore these get a pointer to it. install fills it before the server listens, and nothing reads it
// earlier.
type served struct {
	// kube calls the logical cluster of each call's context.
	kube kubernetes.Interface
	// api is upstream's handler of the built-in types. The handler chain sets it.
	api http.Handler

	registries builtin.Registries
	builtin    sets.Set[schema.GroupResource]
	custom     *customresources.Handler
	discovery  *discovery.Discovery
	openapi    *openapi.OpenAPI
	// documents describes the APIs of a logical cluster, exportDocuments the APIs of the view of an export, and sliceDocuments those of the
	// view of a slice of cached resources.
	documents, exportDocuments, sliceDocuments http.Handler

	staticOpenAPI atomic.Pointer[spec.Swagger]
	// builtinTypes merges objects of built-in types. The first request that needs it creates it.
	builtinTypes func() (managedfields.TypeConverter, error)
	// builtinSchemas are the schemas of built-in objects. They are collected on the first use.
	builtinSchemas func() resolver.SchemaResolver
	// changed receives a value after the served resources have changed, for the garbage collector. It holds one value.
	changed chan struct{}
}

func newServed() *served {
	s := &served{changed: make(chan struct{}, 1)}
	s.builtinTypes = sync.OnceValues(s.newBuiltinTypes)
	s.builtinSchemas = sync.OnceValue(newBuiltinSchemas)
	return s
}

// labelSecret sets a label of a Secret in the cluster of ctx.
func (s *served) labelSecret(ctx context.Context, secret *corev1.Secret, label, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": secret.UID, "labels": map[string]string{label: value}}})
	if err != nil {
		return err
	}
	_, err = s.kube.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// storedResources returns the resources of the cluster of ctx whose stored objects count against the object limit.
func (s *served) storedResources(ctx context.Context) ([]schema.GroupResource, error) {
	resources, err := s.discovery.Resources(ctx)
	if err != nil {
		return nil, err
	}
	var stored []schema.GroupResource
	for _, r := range resources {
		if r.Verbs.Has("list") && objectlimit.Counted(r.GroupResource()) {
			stored = append(stored, r.GroupResource())
		}
	}
	return stored, nil
}

// restMapper returns the REST mapper of the cluster of a context.
func (s *served) restMapper(ctx context.Context) (meta.RESTMapper, error) {
	return s.discovery.RESTMapper(ctx)
}

// current serves documents that describe the bound APIs at the time of the request. choose returns their handler.
func (s *served) current(choose func() http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.custom.CatchUp(r)
		choose().ServeHTTP(w, r)
	})
}

// withCustomResources serves resources that are not built in.
func (s *served) withCustomResources(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isCustom(r.Context()) {
			s.custom.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isCustom reports whether a request is for a custom resource.
func (s *served) isCustom(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest &&
		(customresources.InView(ctx) || !s.builtin.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}))
}

// typeConverter returns the converter that merges objects of a kind in a cluster.
func (s *served) typeConverter(cluster logicalcluster.Name, gvk schema.GroupVersionKind) managedfields.TypeConverter {
	if legacyscheme.Scheme.Recognizes(gvk) {
		if converter, err := s.builtinTypes(); err == nil {
			return converter
		}
	} else if converter, ok := s.openapi.TypeConverter(cluster, gvk); ok {
		return converter
	}
	return managedfields.NewDeducedTypeConverter()
}

func (s *served) newBuiltinTypes() (managedfields.TypeConverter, error) {
	models := map[string]*spec.Schema{}
	for name, model := range s.staticOpenAPI.Load().Definitions {
		models[name] = &model
	}
	return managedfields.NewTypeConverter(models, false)
}

// schemas returns the schemas of a cluster.
func (s *served) schemas(cluster logicalcluster.Name) resolver.SchemaResolver {
	return s.openapi.SchemaResolver(cluster, s.builtinSchemas())
}

func newBuiltinSchemas() resolver.SchemaResolver {
	return resolver.NewDefinitionsSchemaResolver(generatedopenapi.GetOpenAPIDefinitions, legacyscheme.Scheme, apiextensionsapiserver.Scheme)
}

// resourcesChanged notifies the garbage collector that the served resources have changed. It does not block.
func (s *served) resourcesChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
