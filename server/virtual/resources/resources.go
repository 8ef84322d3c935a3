// Package resources serves resources whose objects are anywhere: who writes a virtual workspace describes them with a
// CustomResourceDefinition and says where the objects are, and clients find a Kubernetes API.
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

// Objects are those of one resource in a namespace, or in all. A dynamic.ResourceInterface is one.
//
// They behave like an API server: errors are *apierrors.StatusError; Update refuses an object whose resourceVersion is not
// the current one; List and Watch heed all of their options. subresources is "status" where a client updates that.
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

// Resource is one that a view has.
type Resource struct {
	// Definition describes it. What is stored nowhere needs no version that is; the one marked with storage is that in which
	// Objects are given and taken.
	Definition *apiextensionsv1.CustomResourceDefinition
	// ReadOnly objects can be got, listed and watched: Create, Update and Delete are never called.
	ReadOnly bool
	// StatusOnly objects are ReadOnly but for their status.
	StatusOnly bool
	// Objects returns those of a namespace, empty for all namespaces or a resource without. ctx is that of the request, with the
	// logical cluster, or the wildcard, that the view has put into it.
	Objects func(ctx context.Context, namespace string) (Objects, error)
}

// New returns a handler that serves resources, and discovery and OpenAPI of them, to requests with a logical cluster in
// their context. The view that passes a request on to it has authorized that, and is asked again whether a client may
// create what it applies.
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

// Documents returns a handler that serves discovery, which is not aggregated, and OpenAPI of resources whose Objects are served by
// somebody else.
func Documents(all ...Resource) (http.Handler, error) {
	custom, err := static(all)
	if err != nil {
		return nil, err
	}
	return documentsOf(discovery.Of(custom.List).WithoutAggregation(), custom), nil
}

func documentsOf(d *discovery.Discovery, custom *customresources.Handler) http.Handler {
	return d.WithDiscovery(openapi.Of(custom.List).WithOpenAPI(openapi.NothingBuiltIn))
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

// Parse reads a definition from YAML, for programs that embed a file.
func Parse(definition []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, crd); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return crd, nil
}
