package customresources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file serves the resources of exports to their providers: by view, which is an export, and by identity.

// viewPrefix is the prefix of names of views, which is invalid in the name of a logical cluster.
const viewPrefix = "apiexport/"

// ViewOf returns the name under which the registry stores the resources of an export, in place of the name of a
// logical cluster.
func ViewOf(cluster logicalcluster.Name, export string) logicalcluster.Name {
	return logicalcluster.Name(viewPrefix + string(cluster) + "/" + export)
}

// ExportOf reverses ViewOf.
func ExportOf(view logicalcluster.Name) (cluster logicalcluster.Name, export string, ok bool) {
	rest, isView := strings.CutPrefix(string(view), viewPrefix)
	of, export, ok := strings.Cut(rest, "/")
	return logicalcluster.Name(of), export, ok && isView
}

func isView(name logicalcluster.Name) bool { return strings.HasPrefix(string(name), viewPrefix) }

type viewKey struct{}

// WithView returns a context whose requests use the definitions of a view instead of those of the cluster of the request.
func WithView(ctx context.Context, view logicalcluster.Name) context.Context {
	return context.WithValue(ctx, viewKey{}, view)
}

func viewFrom(ctx context.Context) (logicalcluster.Name, bool) {
	view, ok := ctx.Value(viewKey{}).(logicalcluster.Name)
	return view, ok
}

// InView reports whether the requests of a context use the definitions of a view. No other definition may serve them,
// because a provider can choose any name for its resources.
func InView(ctx context.Context) bool {
	_, ok := viewFrom(ctx)
	return ok
}

// followExports watches the resources of the exports of all clusters.
func (r *registry) followExports(exports informers.Lister[*apisv1alpha2.APIExport],
	schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	exports.AddHandlerForAll(func(old, obj runtime.Object) {
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
	schemas.AddHandlerForAll(func(_, obj runtime.Object) {
		if s, ok := obj.(*apisv1alpha1.APIResourceSchema); ok && s != nil { // otherwise the export keeps its previous definition
			again(logicalcluster.Of(s), s.Name)
		}
	})
	r.conversions.AddHandlerForAll(func(old, obj runtime.Object) {
		c := conversionIn(old, obj)
		again(logicalcluster.Of(c), c.Name)
	})
}

// follow makes the view of an export serve its current resources.
func (r *registry) follow(export *apisv1alpha2.APIExport, schemas informers.Lister[*apisv1alpha1.APIResourceSchema]) {
	if export.Status.IdentityHash == "" {
		return
	}
	cluster := logicalcluster.Of(export)
	offered := map[string]*Definition{}
	for _, resource := range export.Spec.Resources {
		if r.isSystemResource(cluster, export.Name, schema.GroupResource{Group: resource.Group, Resource: resource.Name}) {
			key := ResourceName(resource.Name, resource.Group)
			offered[key] = r.system[key]
			continue
		}
		s, err := schemas.Get(cluster, "", resource.Schema)
		if err != nil {
			continue // arrives later, or never
		}
		crd, rules, err := r.definitionOf(s)
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("APIExport %s|%s: %w", cluster, export.Name, err))
			continue
		}
		shared := sharing{Identity: export.Status.IdentityHash, rules: rules}
		if resource.Storage.Virtual != nil {
			shared.shownBy = informers.Key{Cluster: cluster, Name: export.Name}
		}
		d, err := r.definition(crd, shared)
		if err != nil {
			utilruntime.HandleError(err)
			continue
		}
		offered[d.Key()] = d
	}
	r.offer(ViewOf(cluster, export.Name), offered)
}

// offer replaces the resources of a view.
func (r *registry) offer(view logicalcluster.Name, offered map[string]*Definition) {
	r.mu.RLock()
	before := slices.Clone(r.installed[view])
	r.mu.RUnlock()
	for key, d := range offered {
		r.replace(view, key, Installed{Definition: d})
	}
	for _, now := range before {
		if offered[now.key] == nil {
			r.replace(view, now.key, Installed{})
		}
	}
}
