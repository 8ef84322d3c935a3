package customresources

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file makes clusters serve the APIs that they bind. The server keeps copies of the schemas of bound APIs in the
// cluster system:bound-crds, each under its UID, so that they outlive their providers.

// bound holds the resources that clusters bind. The lock of the registry guards it.
type bound struct {
	schemas map[string]kept // by the UID of the schema
	// missing are bound resources whose schema is not known yet.
	missing map[use]binding
}

// kept is the definition of a schema, with its rules of conversion.
type kept struct {
	crd   *apiextensionsv1.CustomResourceDefinition
	rules *apisv1alpha1.APIConversionSpec
}

// use is a resource of a cluster.
type use struct {
	cluster logicalcluster.Name
	key     string
}

// binding is the part of an APIBinding that concerns one resource.
type binding struct {
	name             string
	schema, identity string
	shownBy          informers.Key // the export, if its provider publishes its own objects
	deleting         bool
}

func newBound() bound {
	return bound{schemas: map[string]kept{}, missing: map[use]binding{}}
}

// followBindings follows the APIBindings of all clusters, and the schemas that are kept for them.
func (r *registry) followBindings(bindings *informers.Informer, schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	schemas.AddHandler(func(old, obj runtime.Object) {
		if obj == nil { // whatever serves a resource continues to do so
			if gone := old.(*apisv1alpha1.APIResourceSchema); logicalcluster.Of(gone) == logicalcluster.SystemBoundCRDs {
				r.mu.Lock()
				delete(r.bound.schemas, gone.Name)
				r.mu.Unlock()
			}
			return
		}
		if s := obj.(*apisv1alpha1.APIResourceSchema); logicalcluster.Of(s) == logicalcluster.SystemBoundCRDs {
			r.keep(s)
		}
	})
	r.conversions.AddHandler(func(old, obj runtime.Object) {
		c := conversionIn(old, obj)
		if logicalcluster.Of(c) != logicalcluster.SystemBoundCRDs {
			return
		}
		if s, err := schemas.Get(logicalcluster.SystemBoundCRDs, "", c.Name); err == nil {
			r.rekeep(s, bindings)
		}
	})
	bindings.AddHandler(func(old, obj runtime.Object) {
		before, now := usesOf(old), usesOf(obj)
		for u, b := range before {
			if _, ok := now[u]; !ok {
				r.unbind(u, b)
			}
		}
		for u, b := range now {
			r.bind(u, b)
		}
	})
}

// conversionIn returns the APIConversion of an event.
func conversionIn(old, obj runtime.Object) *apisv1alpha1.APIConversion {
	if obj == nil {
		obj = old
	}
	return obj.(*apisv1alpha1.APIConversion)
}

// rekeep replaces a schema after a change of its rules of conversion, and serves it where it is bound.
func (r *registry) rekeep(schema *apisv1alpha1.APIResourceSchema, bindings *informers.Informer) {
	r.mu.Lock()
	delete(r.bound.schemas, schema.Name)
	r.mu.Unlock()
	r.keep(schema)
	for _, obj := range bindings.Indexer().List() {
		for u, b := range usesOf(obj.(*apisv1alpha2.APIBinding)) {
			if b.schema == schema.Name {
				r.bind(u, b)
			}
		}
	}
}

// usesOf returns what an APIBinding makes its cluster serve.
func usesOf(obj runtime.Object) map[use]binding {
	b, ok := obj.(*apisv1alpha2.APIBinding)
	if !ok || b == nil {
		return nil
	}
	uses := make(map[use]binding, len(b.Status.BoundResources))
	for _, resource := range b.Status.BoundResources {
		var shownBy informers.Key
		if len(resource.StorageVersions) == 0 && b.Spec.Reference.Export != nil { // at least one version is stored
			shownBy = informers.Key{Cluster: logicalcluster.Name(b.Status.APIExportClusterName), Name: b.Spec.Reference.Export.Name}
		}
		uses[use{logicalcluster.Of(b), ResourceName(resource.Resource, resource.Group)}] = binding{
			name: b.Name, schema: resource.Schema.UID, identity: resource.Schema.IdentityHash, shownBy: shownBy,
			deleting: b.DeletionTimestamp != nil,
		}
	}
	return uses
}

// keep adds a schema, and serves it where it is already bound.
func (r *registry) keep(schema *apisv1alpha1.APIResourceSchema) {
	r.mu.RLock()
	_, known := r.bound.schemas[schema.Name] // schemas never change
	r.mu.RUnlock()
	if known {
		return
	}
	crd, rules, err := r.definitionOf(schema)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("serving a bound API: %w", err))
		return
	}
	r.mu.Lock()
	r.bound.schemas[schema.Name] = kept{crd, rules}
	waiting := map[use]binding{}
	for u, b := range r.bound.missing {
		if b.schema == schema.Name {
			waiting[u] = b
		}
	}
	r.mu.Unlock()
	for u, b := range waiting {
		r.bind(u, b)
	}
}

// bind makes a cluster serve a resource of a binding, if its schema is known. A CustomResourceDefinition of the cluster
// takes precedence, and system definitions need no binding.
func (r *registry) bind(u use, b binding) {
	if r.system[u.key] != nil {
		return
	}
	r.mu.Lock()
	schema, arrived := r.bound.schemas[b.schema]
	own, _ := r.installed[u.cluster].get(u.key)
	if arrived {
		delete(r.bound.missing, u)
	} else {
		r.bound.missing[u] = b
	}
	r.mu.Unlock()
	if !arrived || (own.Definition != nil && own.Binding == "") {
		return
	}
	d, err := r.definition(schema.crd, sharing{b.identity, schema.rules, b.shownBy})
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	r.keepOnce(b.schema, schema, d)
	r.replace(u.cluster, u.key, Installed{Definition: d, Terminating: b.deleting, Binding: b.name, boundAt: time.Since(r.made)})
}

// keepOnce makes a kept schema share the content of a definition of it, which may be older: that of the export.
func (r *registry) keepOnce(uid string, schema kept, d *Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.bound.schemas[uid]; ok && now == schema {
		r.bound.schemas[uid] = kept{d.stored, schema.rules}
	}
}

// unbind makes a cluster stop serving a resource of a binding.
func (r *registry) unbind(u use, b binding) {
	r.mu.Lock()
	if r.bound.missing[u].name == b.name {
		delete(r.bound.missing, u)
	}
	own, _ := r.installed[u.cluster].get(u.key)
	r.mu.Unlock()
	if own.Binding == b.name {
		r.replace(u.cluster, u.key, Installed{})
	}
}

// identified returns the definition of a bound resource of all clusters: if several have the identity, the one that
// serves the version.
func (r *registry) identified(key, identity, version string) (*Definition, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := slices.DeleteFunc(slices.Clone(r.byKey[key]), func(d *Definition) bool {
		return d.Identity != identity || d.IsVirtual() || !d.Serves(version)
	})
	if len(found) == 0 {
		return nil, false
	}
	return slices.MinFunc(found, func(a, b *Definition) int { return strings.Compare(a.Hash, b.Hash) }), true
}

// Identity returns the identity under which a cluster stores the objects of a resource; empty if the resource is not
// bound.
func (h *Handler) Identity(cluster logicalcluster.Name, resource schema.GroupResource) string {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	if i, ok := h.registry.installed[cluster].get(ResourceName(resource.Resource, resource.Group)); ok {
		return i.Identity
	}
	return ""
}
