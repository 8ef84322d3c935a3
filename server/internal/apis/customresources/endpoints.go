package customresources

import (
	"context"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file serves virtual resources whose objects are in a virtual workspace that the provider runs.

// Endpoints resolves endpoint slices in the cluster of a provider to virtual workspaces.
type Endpoints interface {
	// URL returns that of the virtual workspace of a slice, and whether consumers may delete objects there.
	URL(ctx context.Context, cluster logicalcluster.Name, slice corev1.TypedLocalObjectReference) (at *url.URL, deletes bool, err error)
	// Changed returns a channel that is closed when a slice changes.
	Changed(ctx context.Context, cluster logicalcluster.Name, slice corev1.TypedLocalObjectReference) (<-chan struct{}, error)
	// Options store the objects of a resource in the virtual workspace, in the logical cluster of each context.
	Options(at *url.URL, resource schema.GroupVersionResource) (generic.RESTOptionsGetter, error)
	// Objects returns the objects of a resource by namespace, in the logical cluster of each context.
	Objects(at *url.URL, resource schema.GroupVersionResource) (func(namespace string) Objects, error)
	// Forward serves a request by the virtual workspace, in the logical cluster of its context, at a path of the API.
	Forward(w http.ResponseWriter, r *http.Request, at *url.URL, path string)
}

// Objects are those of a resource in a virtual workspace, with errors for consumers.
type Objects interface {
	Get(ctx context.Context, name string, options metav1.GetOptions, below ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions, below ...string) error
}

// IsVirtual reports whether the objects of a resource of a cluster belong to a provider.
func (h *Handler) IsVirtual(cluster logicalcluster.Name, resource schema.GroupResource) bool {
	i, _ := h.registry.get(cluster, ResourceName(resource.Resource, resource.Group))
	return i.Definition != nil && i.IsVirtual()
}

// elsewhere is a virtual workspace.
type elsewhere struct {
	slice corev1.TypedLocalObjectReference
	url   *url.URL
	// deletes reports whether consumers may delete objects.
	deletes bool
}

func (e *elsewhere) same(other *elsewhere) bool {
	return (e == nil) == (other == nil) && (e == nil || e.url.String() == other.url.String())
}

// originElsewhere is origin for resources whose storage is an endpoint slice. The virtual workspace serves the objects in the version
// that would otherwise be the storage version.
func (h *Handler) originElsewhere(ctx context.Context, d *Definition, slice corev1.TypedLocalObjectReference) (origin, error) {
	at, deletes, err := h.config.Endpoints.URL(ctx, d.shownBy.Cluster, slice)
	if err != nil {
		return origin{}, unavailable(d, err)
	}
	o := origin{definition: d, selector: labels.Everything(), elsewhere: &elsewhere{slice, at, deletes}}
	for _, v := range d.CRD.Spec.Versions {
		if v.Storage {
			o.version = schema.GroupVersion{Group: d.CRD.Spec.Group, Version: v.Name}
		}
	}
	return o, nil
}

// endWithSlice ends a watch when the endpoint slice from which its objects come changes.
func (s *virtualStorage) endWithSlice(ctx context.Context, r *reading) (context.Context, error) {
	if r.elsewhere == nil {
		return ctx, nil
	}
	return s.handler.untilChanged(ctx, s.definition, r.elsewhere.slice)
}

// untilChanged returns a context that ends when the endpoint slice of a definition changes.
func (h *Handler) untilChanged(ctx context.Context, d *Definition, slice corev1.TypedLocalObjectReference) (context.Context, error) {
	ctx, end := context.WithCancel(ctx)
	changed, err := h.config.Endpoints.Changed(ctx, d.shownBy.Cluster, slice)
	if err != nil {
		end()
		return nil, unavailable(d, err)
	}
	go func() {
		defer end()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}()
	return ctx, nil
}
