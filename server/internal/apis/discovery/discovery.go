// Package discovery serves the list of the APIs of a logical cluster. Documents are built once for each distinct set of
// APIs, and shared by all clusters with that set.
package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxSets limits the sets of APIs whose documents are in memory.
const maxSets = 256

// Discovery serves the discovery documents of every logical cluster.
type Discovery struct {
	builtin []apidiscoveryv2.APIGroupDiscovery
	custom  func(logicalcluster.Name) []customresources.Installed
	all     func() []*customresources.Definition
	sets    *lru.Cache // of *documents, by the hash of the set
	// claimable and claimed are set only for views.
	claimable []apidiscoveryv2.APIGroupDiscovery
	claimed   func(logicalcluster.Name, schema.GroupResource) bool
	plain     bool
}

// New returns discovery of the resources that core and named describe, which are upstream's aggregated discovery of
// /api and /apis, and of the custom resources of each cluster.
func New(core, named http.Handler, custom *customresources.Handler) (*Discovery, error) {
	d := &Discovery{custom: custom.List, all: custom.Distinct, sets: lru.New(maxSets)}
	for _, source := range []http.Handler{core, named} {
		groups, err := read(source)
		if err != nil {
			return nil, fmt.Errorf("discovery of built-in types: %w", err)
		}
		d.builtin = append(d.builtin, groups...)
	}
	return d, nil
}

// ForViews returns discovery of the views of exports, which have the built-in resources that claimed selects, and the
// custom resources that shown selects.
func (d *Discovery) ForViews(claimed func(view logicalcluster.Name, resource schema.GroupResource) bool,
	shown func(view logicalcluster.Name) []customresources.Installed) *Discovery {
	return &Discovery{claimable: d.builtin, claimed: claimed, custom: shown, all: d.all, sets: lru.New(maxSets)}
}

// isOfViews reports whether clients get only the content of the documents, without built-in resources.
func (d *Discovery) isOfViews() bool { return d.claimed != nil }

// BuiltinVersions returns the versions in which a view has built-in resources.
func (d *Discovery) BuiltinVersions(view logicalcluster.Name) sets.Set[schema.GroupVersion] {
	versions := sets.New[schema.GroupVersion]()
	for _, r := range d.claimedBy(view) {
		versions.Insert(r.version)
	}
	return versions
}

// Of returns discovery of views that have only the custom resources that list returns.
func Of(list func(view logicalcluster.Name) []customresources.Installed) *Discovery {
	none := func(logicalcluster.Name, schema.GroupResource) bool { return false }
	return &Discovery{claimed: none, custom: list, sets: lru.New(maxSets)}
}

// WithoutAggregation returns discovery that lists resources one version at a time, with the hashes of their storage versions, which
// aggregated documents do not have.
func (d *Discovery) WithoutAggregation() *Discovery {
	d.plain = true
	return d
}

// claimedBy returns the built-in resources of a view.
func (d *Discovery) claimedBy(view logicalcluster.Name) []builtinResource {
	var found []builtinResource
	for _, g := range d.claimable {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				if d.claimed(view, schema.GroupResource{Group: g.Name, Resource: r.Resource}) {
					found = append(found, builtinResource{schema.GroupVersion{Group: g.Name, Version: v.Version}, r})
				}
			}
		}
	}
	return found
}

// read requests the document of a handler of aggregated discovery.
func read(source http.Handler) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	recorder := httptest.NewRecorder()
	source.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		return nil, fmt.Errorf("status %d", recorder.Code)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Builtin returns the resources that every cluster serves from compiled code.
func (d *Discovery) Builtin() sets.Set[schema.GroupResource] {
	resources := sets.New[schema.GroupResource]()
	for _, g := range d.builtin {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				resources.Insert(schema.GroupResource{Group: g.Name, Resource: r.Resource})
			}
		}
	}
	return resources
}

// BuiltinNames returns the names of the resources of a group that compiled code serves.
func (d *Discovery) BuiltinNames(group string) []apiextensionsv1.CustomResourceDefinitionNames {
	var names []apiextensionsv1.CustomResourceDefinitionNames
	for _, g := range d.builtin {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				of := apiextensionsv1.CustomResourceDefinitionNames{Plural: r.Resource, Singular: r.SingularResource, ShortNames: r.ShortNames}
				if r.ResponseKind != nil {
					of.Kind, of.ListKind = r.ResponseKind.Kind, r.ResponseKind.Kind+"List"
				}
				names = append(names, of)
			}
		}
	}
	return names
}

func (d *Discovery) documents(cluster logicalcluster.Cluster) *documents {
	installed := d.custom(cluster.Name) // of the wildcard: the resources of every cluster
	claimed := d.claimedBy(cluster.Name)
	key := setKey(claimed, installed)
	if found, ok := d.sets.Get(key); ok {
		return found.(*documents)
	}
	prefix := ""
	if d.isOfViews() {
		prefix = "/" // clients of views expect a hash of /<group>/<version>/<kind>
	}
	built := build(d.builtin, claimed, installed, prefix)
	d.sets.Add(key, built)
	return built
}

// setKey identifies a set of APIs by its content.
func setKey(claimed []builtinResource, installed []customresources.Installed) [sha256.Size]byte {
	h := sha256.New()
	for _, r := range claimed {
		fmt.Fprintf(h, "%s %s\n", r.version, r.resource.Resource)
	}
	for _, i := range installed {
		fmt.Fprintf(h, "%s %t\n", i.Hash, i.Terminating)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Resources returns the resources of the context's cluster, each in its preferred version, without subresources. The list
// is shared and read-only.
func (d *Discovery) Resources(ctx context.Context) ([]Resource, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	return d.documents(logicalcluster.Cluster{Name: cluster}).preferred(), nil
}

// Served returns a resource in the version that the context's cluster prefers. A resource that the cluster does not
// serve is returned unchanged.
func (d *Discovery) Served(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	served, err := d.Resources(ctx)
	for i := range served {
		if served[i].GroupResource() == resource.GroupResource() {
			return served[i].GroupVersionResource, nil
		}
	}
	return resource, err
}

// RESTMapper returns the mapper of the context's cluster.
func (d *Discovery) RESTMapper(ctx context.Context) (meta.RESTMapper, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	return d.documents(logicalcluster.Cluster{Name: cluster}).mapper(), nil
}

// AllResources returns every resource for which any cluster of the shard stores objects, each in one version: the most stable and
// highest that any of them serves. If definitions differ, kind and scope are those of one of them.
func (d *Discovery) AllResources() []Resource {
	best := map[schema.GroupResource]Resource{}
	all := d.all()
	system := sets.New[string]()
	for _, definition := range all {
		if definition.IsSystem() {
			system.Insert(definition.Key())
		}
	}
	for _, definition := range all {
		// Only the server determines the versions of the resources that it defines.
		if definition.IsVirtual() || (system.Has(definition.Key()) && !definition.IsSystem()) {
			continue
		}
		crd := definition.CRD
		for _, v := range crd.Spec.Versions {
			// Tenants can write the accepted names, which are in the status, but not the name of the definition.
			gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
			other, known := best[gvr.GroupResource()]
			if !v.Served || (known && version.CompareKubeAwareVersionStrings(other.Version, v.Name) >= 0) {
				continue
			}
			r := resourceOf(customresources.Installed{Definition: definition}, v.Name)
			best[gvr.GroupResource()] = Resource{
				GroupVersionResource: gvr, Kind: r.ResponseKind.Kind, Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace, Verbs: sets.New(r.Verbs...),
			}
		}
	}
	list := preferred(d.builtin)
	builtin := len(list)
	for _, r := range list {
		delete(best, r.GroupResource())
	}
	for _, r := range best {
		list = append(list, r)
	}
	slices.SortFunc(list[builtin:], func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return list
}
