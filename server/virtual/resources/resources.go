// Package resources serves resources from any storage: the author of a virtual workspace defines them with a
// CustomResourceDefinition and implements the storage, and clients get a Kubernetes API.
package resources

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/apis/openapi"
	"github.com/kcplane/kcp/server/virtual"
)

// Objects are the objects of one resource in a namespace, or in all namespaces. A dynamic.ResourceInterface
// implements it.
//
// They behave like an API server: errors are *apierrors.StatusError; Update refuses an object whose resourceVersion is not
// the current one; List and Watch respect all of their options. subresources is "status" if a client updates the status.
type Objects interface {
	Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error)
	List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, obj *unstructured.Unstructured, options metav1.CreateOptions,
		subresources ...string) (*unstructured.Unstructured, error)
	Update(ctx context.Context, obj *unstructured.Unstructured, options metav1.UpdateOptions,
		subresources ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error
}

// Resource is a resource of a view.
type Resource struct {
	// Definition describes the resource. The version that is marked with storage is the version of Objects; nothing has to
	// be stored in it.
	Definition *apiextensionsv1.CustomResourceDefinition
	// ReadOnly objects support get, list and watch: Create, Update and Delete are never called.
	ReadOnly bool
	// StatusOnly objects are ReadOnly except for their status.
	StatusOnly bool
	// Objects returns the objects of a namespace; an empty namespace means all namespaces, or a cluster-scoped resource. ctx is
	// that of the request, with the logical cluster, or the wildcard, that the view has set.
	Objects func(ctx context.Context, namespace string) (Objects, error)
}

// New returns a handler that serves resources, and discovery and OpenAPI of them, to requests with a logical cluster in
// their context. The view that passes on a request must have authorized it. The view is called again to decide whether
// a client may create the object that it applies.
func New(all ...Resource) (http.Handler, error) {
	custom, err := static(all)
	if err != nil {
		return nil, err
	}
	documents := documentsOf(discovery.Of(custom.List), custom)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
			custom.ServeHTTP(w, r)
			return
		}
		documents.ServeHTTP(w, r)
	}), nil
}

// Documents returns a handler that serves unaggregated discovery and OpenAPI of resources whose Objects another handler serves.
func Documents(all ...Resource) (http.Handler, error) {
	custom, err := static(all)
	if err != nil {
		return nil, err
	}
	return documentsOf(discovery.Of(custom.List).WithoutAggregation(), custom), nil
}

func documentsOf(d *discovery.Discovery, custom *customresources.Handler) http.Handler {
	return d.WithDiscovery(openapi.Of(custom.List).WithOpenAPI(openapi.NoBuiltIn))
}

func static(all []Resource) (*customresources.Handler, error) {
	var definitions []customresources.Static
	for _, r := range all {
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsapiserver.Scheme.Convert(customresources.Establish(r.Definition), internal, nil); err != nil {
			return nil, fmt.Errorf("definition %s: %w", r.Definition.Name, err)
		}
		if errs := customresources.ValidateDefinition(context.Background(), internal); len(errs) > 0 {
			return nil, fmt.Errorf("definition %s: %w", r.Definition.Name, errs.ToAggregate())
		}
		definitions = append(definitions,
			customresources.Static{CRD: r.Definition, ReadOnly: r.ReadOnly, StatusOnly: r.StatusOnly, Options: options{r.Objects}})
	}
	return customresources.NewStatic(virtual.Serving, definitions)
}

// Parse parses a definition in YAML, for programs that embed a file.
func Parse(definition []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, crd); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return crd, nil
}
