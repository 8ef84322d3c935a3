// Package exports finds the APIs that clusters export, and their bindings.
package exports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Names of indexes.
const (
	byExport   = "export"   // bindings, by the result of Key
	bySchema   = "schema"   // exports, by cluster and name of a schema
	byIdentity = "identity" // exports, by identity hash
	byName     = "name"     // endpoint slices, by the name of their export in any cluster
)

// Exports finds exports, schemas and bindings of all clusters.
type Exports struct {
	exports  informers.Lister[*apisv1alpha2.APIExport]
	schemas  informers.Lister[*apisv1alpha1.APIResourceSchema]
	bindings informers.Lister[*apisv1alpha2.APIBinding]
	slices   informers.Lister[*apisv1alpha1.APIExportEndpointSlice]
	index    *pathindex.Index
	stored   Stored
	system   System
	// elsewhere is nil on a server without other shards.
	elsewhere Elsewhere

	mu    sync.RWMutex
	bound map[string]int // the number of bindings that have found each export, by the result of Key
}

// Stored reads the APIBindings of a cluster as they are stored.
type Stored interface {
	ListIn(ctx context.Context, cluster logicalcluster.Name, options metav1.ListOptions) (runtime.Object, error)
	WatchIn(ctx context.Context, cluster logicalcluster.Name, options metav1.ListOptions) (watch.Interface, error)
}

// New returns Exports over set, whose informers must not run yet. System are the resources that the server itself serves.
func New(set *informers.Set, t *pathindex.Index, system System, bindings Stored) (*Exports, error) {
	e := &Exports{
		exports: set.APIExports, schemas: set.APIResourceSchemas, bindings: set.APIBindings, slices: set.APIExportEndpointSlices,
		index: t, system: system, stored: bindings, bound: map[string]int{},
	}
	err := set.APIExportEndpointSlices.AddIndexers(cache.Indexers{byName: func(obj any) ([]string, error) {
		return []string{obj.(*apisv1alpha1.APIExportEndpointSlice).Spec.Export.Name}, nil
	}})
	if err != nil {
		return nil, err
	}
	err = e.bindings.AddIndexers(cache.Indexers{byExport: func(obj any) ([]string, error) {
		if key := exportOf(obj); key != "" {
			return []string{key}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, err
	}
	e.bindings.AddHandler(e.count)
	return e, e.exports.AddIndexers(cache.Indexers{
		bySchema: func(obj any) ([]string, error) {
			export := obj.(*apisv1alpha2.APIExport)
			var keys []string
			for _, r := range export.Spec.Resources {
				keys = append(keys, Key(logicalcluster.Of(export), r.Schema))
			}
			return keys, nil
		},
		byIdentity: func(obj any) ([]string, error) {
			if hash := obj.(*apisv1alpha2.APIExport).Status.IdentityHash; hash != "" {
				return []string{hash}, nil
			}
			return nil, nil
		},
	})
}

// Key identifies an export, or a schema, among those of all clusters.
func Key(cluster logicalcluster.Name, name string) string {
	return informers.Key{Cluster: cluster, Name: name}.String()
}

// Cluster returns the logical cluster at a path; for an empty path it returns from.
func (e *Exports) Cluster(from logicalcluster.Name, path string) (logicalcluster.Name, bool) {
	if path == "" {
		return from, true
	}
	place, ok := e.index.From(from, path)
	return place.Cluster, ok && place.Cluster != ""
}

// Find returns the export for a reference in cluster from, or a NotFound error.
func (e *Exports) Find(from logicalcluster.Name, reference apisv1alpha2.ExportBindingReference) (*apisv1alpha2.APIExport, error) {
	cluster, ok := e.Cluster(from, reference.Path)
	if ok {
		export, err := e.Get(cluster, reference.Name)
		if err == nil || !apierrors.IsNotFound(err) {
			return export, err
		}
	}
	err := apierrors.NewNotFound(apisv1alpha2.Resource("apiexports"), reference.Name)
	err.ErrStatus.Message = fmt.Sprintf("APIExport %s|%s not found", cmp.Or(reference.Path, e.index.Path(from)), reference.Name)
	return nil, err
}

// Get returns an export of a cluster.
func (e *Exports) Get(cluster logicalcluster.Name, name string) (*apisv1alpha2.APIExport, error) {
	return e.exports.Get(cluster, "", name)
}

// Schema returns a schema of the cluster that exports it.
func (e *Exports) Schema(cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	return e.schemas.Get(cluster, "", name)
}

// WithSchema returns the exports that have a schema of their cluster.
func (e *Exports) WithSchema(cluster logicalcluster.Name, name string) []*apisv1alpha2.APIExport {
	found, _ := e.exports.ByIndex(bySchema, Key(cluster, name)) // the index exists
	return found
}

// WithIdentity returns the exports that share an identity.
func (e *Exports) WithIdentity(hash string) []*apisv1alpha2.APIExport {
	found, _ := e.exports.ByIndex(byIdentity, hash) // the index exists
	return found
}

// BindingsOf returns the bindings of all clusters that have found an export.
func (e *Exports) BindingsOf(cluster logicalcluster.Name, name string) []*apisv1alpha2.APIBinding {
	found, _ := e.bindings.ByIndex(byExport, Key(cluster, name)) // the index exists
	return found
}

// HasBindings reports whether any cluster has bound an export. It is called for every change of a binding, of which there can
// be very many.
func (e *Exports) HasBindings(cluster logicalcluster.Name, name string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.bound[Key(cluster, name)] > 0
}

// count is an informers.Handler: it counts the bindings of each export.
func (e *Exports) count(old, obj runtime.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if key := exportOf(old); key != "" {
		if e.bound[key]--; e.bound[key] == 0 {
			delete(e.bound, key)
		}
	}
	if key := exportOf(obj); key != "" {
		e.bound[key]++
	}
}

// exportOf returns the key of the export that a binding has found, empty if it has found none.
func exportOf(obj any) string {
	b, ok := obj.(*apisv1alpha2.APIBinding)
	if !ok || b == nil || b.Spec.Reference.Export == nil || b.Status.APIExportClusterName == "" {
		return ""
	}
	return Key(logicalcluster.Name(b.Status.APIExportClusterName), b.Spec.Reference.Export.Name)
}

// BoundTo reports whether a binding has found an export.
func BoundTo(b *apisv1alpha2.APIBinding, cluster logicalcluster.Name, export string) bool {
	return exportOf(b) == Key(cluster, export)
}

// SlicesNaming returns the endpoint slices of all clusters that refer to an export by this name, in any cluster.
func (e *Exports) SlicesNaming(export string) []*apisv1alpha1.APIExportEndpointSlice {
	found, _ := e.slices.ByIndex(byName, export) // the index exists
	return found
}

// BindingsIn returns the bindings of a cluster.
func (e *Exports) BindingsIn(cluster logicalcluster.Name) []*apisv1alpha2.APIBinding {
	found, _ := e.bindings.List(cluster) // the index exists
	return found
}

// StoredBindingsIn reads the bindings of a cluster from storage. The result of BindingsIn can be a moment behind: a client that
// has just learned of a binding can send a request for its resources before BindingsIn returns it.
func (e *Exports) StoredBindingsIn(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error) {
	list, err := e.stored.ListIn(ctx, cluster, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the APIBindings of %s: %w", cluster, err)
	}
	var bindings []*apisv1alpha2.APIBinding
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		bindings = append(bindings, obj.(*apisv1alpha2.APIBinding))
		return nil
	})
	return bindings, err
}

// Binds reports whether a binding refers to an export, whether or not it has found the export.
func (e *Exports) Binds(b *apisv1alpha2.APIBinding, cluster logicalcluster.Name, name string) bool {
	reference := b.Spec.Reference.Export
	if reference == nil || reference.Name != name {
		return false
	}
	of, ok := e.Cluster(logicalcluster.Of(b), reference.Path)
	return ok && of == cluster
}

// Bound returns the binding through which a cluster has a resource, and its entry for the resource.
func (e *Exports) Bound(cluster logicalcluster.Name, resource schema.GroupResource) (*apisv1alpha2.APIBinding,
	*apisv1alpha2.BoundAPIResource) {
	for _, b := range e.BindingsIn(cluster) {
		for i := range b.Status.BoundResources {
			if r := &b.Status.BoundResources[i]; r.Group == resource.Group && r.Resource == resource.Resource {
				return b, r
			}
		}
	}
	return nil, nil
}

// Hash returns the form of the names of an export in labels: SHA-224 in base 62.
func Hash(text string) string {
	sum := sha256.Sum224([]byte(text))
	return new(big.Int).SetBytes(sum[:]).Text(62)
}

// BindingLabel returns the label of all bindings to an export.
func BindingLabel(cluster logicalcluster.Name, name string) (key, value string) {
	return apisv1alpha2.ExportLabel, Hash(string(cluster) + ":" + name)
}

// Identity returns the identity under which a cluster has a resource; empty if the resource is not from an export.
func (e *Exports) Identity(cluster logicalcluster.Name, resource schema.GroupResource) string {
	source, _ := e.Source(cluster, resource)
	return source.Identity
}
