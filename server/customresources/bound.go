package customresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file makes clusters serve what they have bound. The schemas of bound APIs are kept in the cluster system:bound-crds,
// each under its UID, where they outlive their providers.

// bound is what the clusters have bound, guarded by the registry.
type bound struct {
	schemas map[string]*apiextensionsv1.CustomResourceDefinition // by the UID of the schema
	// rules are those of conversions, by the URL under which definitions name them.
	rules map[string]*apisv1alpha1.APIConversionSpec
	// missing are bound resources whose schema has not arrived.
	missing map[use]binding
}

// use is a resource of a cluster.
type use struct {
	cluster logicalcluster.Name
	key     string
}

// binding is what an APIBinding says of one resource.
type binding struct {
	name             string
	schema, identity string
	deleting         bool
}

func newBound() bound {
	return bound{schemas: map[string]*apiextensionsv1.CustomResourceDefinition{}, rules: map[string]*apisv1alpha1.APIConversionSpec{}, missing: map[use]binding{}}
}

// followBindings follows the APIBindings of all clusters, and the schemas that are kept for them.
func (r *registry) followBindings(bindings *informers.Informer, schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	schemas.AddHandler(func(old, obj runtime.Object) {
		if obj == nil { // what serves a resource goes on to
			if gone := old.(*apisv1alpha1.APIResourceSchema); logicalcluster.Of(gone) == logicalcluster.SystemBoundCRDs {
				r.mu.Lock()
				delete(r.bound.schemas, gone.Name)
				r.mu.Unlock()
			}
			return
		}
		if kept := obj.(*apisv1alpha1.APIResourceSchema); logicalcluster.Of(kept) == logicalcluster.SystemBoundCRDs {
			r.keep(kept)
		}
	})
	r.conversions.AddHandler(func(old, obj runtime.Object) {
		c := conversionIn(old, obj)
		if logicalcluster.Of(c) != logicalcluster.SystemBoundCRDs {
			return
		}
		if kept, err := schemas.Get(logicalcluster.SystemBoundCRDs, "", c.Name); err == nil {
			r.rekeep(kept, bindings)
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

// conversionIn returns the conversion that an event is about.
func conversionIn(old, obj runtime.Object) *apisv1alpha1.APIConversion {
	if obj == nil {
		obj = old
	}
	return obj.(*apisv1alpha1.APIConversion)
}

// rekeep takes a schema in again, with other rules of conversion, and serves it where it is bound.
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
		uses[use{logicalcluster.Of(b), ResourceName(resource.Resource, resource.Group)}] = binding{
			name: b.Name, schema: resource.Schema.UID, identity: resource.Schema.IdentityHash, deleting: b.DeletionTimestamp != nil,
		}
	}
	return uses
}

// keep takes a schema in, and serves it where it is bound already.
func (r *registry) keep(schema *apisv1alpha1.APIResourceSchema) {
	r.mu.RLock()
	_, known := r.bound.schemas[schema.Name] // it never changes
	r.mu.RUnlock()
	if known {
		return
	}
	crd, err := r.definitionOf(schema)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("a bound API cannot be served: %w", err))
		return
	}
	r.mu.Lock()
	r.bound.schemas[schema.Name] = crd
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

// bind makes a cluster serve a resource as a binding says, if its schema is there. A definition of the cluster's own goes
// before.
func (r *registry) bind(u use, b binding) {
	r.mu.Lock()
	crd := r.bound.schemas[b.schema]
	own := r.installed[u.cluster][u.key]
	if crd == nil {
		r.bound.missing[u] = b
	} else {
		delete(r.bound.missing, u)
	}
	r.mu.Unlock()
	if crd == nil || (own.Definition != nil && own.Binding == "") {
		return
	}
	d, err := r.definition(crd, b.identity)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	r.replace(u.cluster, u.key, Installed{Definition: d, Terminating: b.deleting, Binding: b.name})
}

// unbind ends that a cluster serves a resource because of a binding.
func (r *registry) unbind(u use, b binding) {
	r.mu.Lock()
	if r.bound.missing[u].name == b.name {
		delete(r.bound.missing, u)
	}
	serves := r.installed[u.cluster][u.key].Binding == b.name
	r.mu.Unlock()
	if serves {
		r.replace(u.cluster, u.key, Installed{})
	}
}

// unavailable tells whether a cluster has bound a resource whose schema is not here.
func (r *registry) unavailable(cluster logicalcluster.Name, key string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, missing := r.bound.missing[use{cluster, key}]
	return missing
}

// identified returns the definition of a bound resource of all clusters: of several that have the identity, the one that
// serves the version.
func (r *registry) identified(key, identity, version string) (*Definition, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := slices.DeleteFunc(slices.Collect(maps.Keys(r.byKey[key])), func(d *Definition) bool { return d.Identity != identity || !d.Serves(version) })
	if len(found) == 0 {
		return nil, false
	}
	return slices.MinFunc(found, func(a, b *Definition) int { return strings.Compare(a.Hash, b.Hash) }), true
}

// Identity returns under which identity a cluster has the objects of a resource, empty if it has not bound it.
func (h *Handler) Identity(cluster logicalcluster.Name, resource schema.GroupResource) string {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	if d := h.registry.installed[cluster][ResourceName(resource.Resource, resource.Group)].Definition; d != nil {
		return d.Identity
	}
	return ""
}

// viewPrefix begins what no logical cluster can be called.
const viewPrefix = "apiexport/"

// ViewOf returns the name under which the registry keeps what an export offers: as if it were a logical cluster.
func ViewOf(cluster logicalcluster.Name, export string) logicalcluster.Name {
	return logicalcluster.Name(viewPrefix + string(cluster) + "/" + export)
}

// ExportOf undoes ViewOf.
func ExportOf(view logicalcluster.Name) (cluster logicalcluster.Name, export string, ok bool) {
	rest, isView := strings.CutPrefix(string(view), viewPrefix)
	of, export, ok := strings.Cut(rest, "/")
	return logicalcluster.Name(of), export, ok && isView
}

func isView(name logicalcluster.Name) bool { return strings.HasPrefix(string(name), viewPrefix) }

type viewKey struct{}

// WithView makes the requests of a context be served by the definitions of a view, instead of those of the cluster that the
// request is for.
func WithView(ctx context.Context, view logicalcluster.Name) context.Context {
	return context.WithValue(ctx, viewKey{}, view)
}

func viewFrom(ctx context.Context) (logicalcluster.Name, bool) {
	view, ok := ctx.Value(viewKey{}).(logicalcluster.Name)
	return view, ok
}

// followExports follows what the exports of all clusters offer.
func (r *registry) followExports(exports informers.Lister[*apisv1alpha2.APIExport], schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	exports.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			gone := old.(*apisv1alpha2.APIExport)
			r.offer(ViewOf(logicalcluster.Of(gone), gone.Name), nil)
			return
		}
		r.follow(obj.(*apisv1alpha2.APIExport), schemas)
	})
	again := func(cluster logicalcluster.Name, schema string) {
		all, err := exports.List(cluster)
		if err != nil {
			return
		}
		for _, export := range all {
			if slices.ContainsFunc(export.Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool { return r.Schema == schema }) {
				r.follow(export, schemas)
			}
		}
	}
	schemas.AddHandler(func(_, obj runtime.Object) {
		if s, ok := obj.(*apisv1alpha1.APIResourceSchema); ok && s != nil { // without it an export goes on to offer what it has
			again(logicalcluster.Of(s), s.Name)
		}
	})
	r.conversions.AddHandler(func(old, obj runtime.Object) {
		c := conversionIn(old, obj)
		again(logicalcluster.Of(c), c.Name)
	})
}

// follow makes the view of an export serve what it offers now.
func (r *registry) follow(export *apisv1alpha2.APIExport, schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	if export.Status.IdentityHash == "" {
		return
	}
	cluster := logicalcluster.Of(export)
	offered := map[string]*Definition{}
	for _, resource := range export.Spec.Resources {
		s, err := schemas.Get(cluster, "", resource.Schema)
		if err != nil {
			continue // comes later, or never
		}
		crd, err := r.definitionOf(s)
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("APIExport %s|%s: %w", cluster, export.Name, err))
			continue
		}
		d, err := r.definition(crd, export.Status.IdentityHash)
		if err != nil {
			utilruntime.HandleError(err)
			continue
		}
		offered[d.Key()] = d
	}
	r.offer(ViewOf(cluster, export.Name), offered)
}

// offer replaces what a view serves.
func (r *registry) offer(view logicalcluster.Name, offered map[string]*Definition) {
	r.mu.RLock()
	before := slices.Collect(maps.Keys(r.installed[view]))
	r.mu.RUnlock()
	for key, d := range offered {
		r.replace(view, key, Installed{Definition: d})
	}
	for _, key := range before {
		if offered[key] == nil {
			r.replace(view, key, Installed{})
		}
	}
}

type identityKey struct{}

// WithIdentity narrows a request to what is stored under an identity.
func WithIdentity(ctx context.Context, identity string) context.Context {
	return context.WithValue(ctx, identityKey{}, identity)
}

func identityFrom(ctx context.Context) (string, bool) {
	identity, ok := ctx.Value(identityKey{}).(string)
	return identity, ok
}
