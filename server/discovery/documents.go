package discovery

import (
	"net/http"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kcplane/kcp/server/customresources"
)

// documents are the discovery documents of one set of APIs. They are built once and shared by the clusters that have it.
type documents struct {
	// groups holds every group with its versions; the core group is the one without a name.
	groups []apidiscoveryv2.APIGroupDiscovery
	// changed are the groups and versions that differ from what is built in; the others are left to upstream.
	changedGroups   map[string]bool
	changedVersions map[schema.GroupVersion]bool

	aggregatedCore, aggregatedNamed http.Handler
	named                           http.Handler
	mapper                          func() meta.RESTMapper
}

// build merges the definitions into the built-in groups.
func build(builtin []apidiscoveryv2.APIGroupDiscovery, installed []customresources.Installed) *documents {
	d := &documents{changedGroups: map[string]bool{}, changedVersions: map[schema.GroupVersion]bool{}}
	for _, group := range builtin {
		copied := group
		copied.Versions = slices.Clone(group.Versions)
		d.groups = append(d.groups, copied)
	}
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if v.Served {
				d.add(schema.GroupVersion{Group: i.CRD.Spec.Group, Version: v.Name}, resourceOf(i, v.Name))
			}
		}
	}
	for g := range d.groups {
		if !d.changedGroups[d.groups[g].Name] {
			continue
		}
		slices.SortStableFunc(d.groups[g].Versions, func(a, b apidiscoveryv2.APIVersionDiscovery) int {
			return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
		})
	}
	d.serve()
	d.mapper = sync.OnceValue(func() meta.RESTMapper { return restmapper.NewDiscoveryRESTMapper(d.groupResources()) })
	return d
}

func (d *documents) add(gv schema.GroupVersion, resource apidiscoveryv2.APIResourceDiscovery) {
	d.changedGroups[gv.Group], d.changedVersions[gv] = true, true
	g := slices.IndexFunc(d.groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == gv.Group })
	if g < 0 {
		g = len(d.groups)
		d.groups = append(d.groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
	}
	versions := &d.groups[g].Versions
	v := slices.IndexFunc(*versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == gv.Version })
	if v < 0 {
		v = len(*versions)
		*versions = append(*versions, apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
	}
	(*versions)[v].Resources = append(slices.Clip((*versions)[v].Resources), resource)
}

// resourceOf describes one version of a custom resource.
func resourceOf(i customresources.Installed, version string) apidiscoveryv2.APIResourceDiscovery {
	crd, names := i.CRD, i.CRD.Status.AcceptedNames
	kind := &metav1.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: names.Kind}
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: names.Plural, SingularResource: names.Singular, Scope: apidiscoveryv2.ScopeCluster, ResponseKind: kind,
		Verbs:      []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		ShortNames: names.ShortNames, Categories: names.Categories,
	}
	if i.Terminating {
		resource.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	}
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		resource.Scope = apidiscoveryv2.ScopeNamespace
	}
	subresources, err := apiextensionshelpers.GetSubresourcesForVersion(crd, version)
	if err != nil || subresources == nil {
		return resource
	}
	verbs := []string{"get", "patch", "update"}
	if subresources.Status != nil {
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "status", ResponseKind: kind, Verbs: verbs})
	}
	if subresources.Scale != nil {
		scale := &metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"}
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "scale", ResponseKind: scale, Verbs: verbs})
	}
	return resource
}

// serve prepares the handlers, each of upstream's making.
func (d *documents) serve() {
	core, named := aggregated.NewResourceManager("api"), aggregated.NewResourceManager("apis")
	roots := discovery.NewRootAPIsHandler(discovery.DefaultAddresses{}, legacyscheme.Codecs)
	var coreGroups, namedGroups []apidiscoveryv2.APIGroupDiscovery
	for _, group := range d.groups {
		if group.Name == "" {
			coreGroups = append(coreGroups, group)
			continue
		}
		namedGroups = append(namedGroups, group)
		roots.AddGroup(apiGroup(group))
	}
	core.SetGroups(coreGroups)
	named.SetGroups(namedGroups)
	for rank, group := range d.groups {
		for v, version := range group.Versions {
			gv := metav1.GroupVersion{Group: group.Name, Version: version.Version}
			named.SetGroupVersionPriority(gv, 10_000-rank, 1_000-v)
		}
	}
	d.aggregatedCore, d.aggregatedNamed, d.named = core, named, roots
}

func apiGroup(group apidiscoveryv2.APIGroupDiscovery) metav1.APIGroup {
	g := metav1.APIGroup{Name: group.Name}
	for _, v := range group.Versions {
		gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// group returns the handler of /apis/<group>, or nil where upstream's is right.
func (d *documents) group(name string) http.Handler {
	if !d.changedGroups[name] {
		return nil
	}
	for _, g := range d.groups {
		if g.Name == name {
			return discovery.NewAPIGroupHandler(legacyscheme.Codecs, apiGroup(g))
		}
	}
	return nil
}

// version returns the handler of /apis/<group>/<version> or /api/v1, or nil where upstream's is right.
func (d *documents) version(gv schema.GroupVersion) http.Handler {
	if !d.changedVersions[gv] {
		return nil
	}
	return discovery.NewAPIVersionHandler(legacyscheme.Codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource { return d.resources(gv) }))
}

// resources lists a version in the form of an APIResourceList.
func (d *documents) resources(gv schema.GroupVersion) []metav1.APIResource {
	var list []metav1.APIResource
	for _, g := range d.groups {
		for _, v := range g.Versions {
			if g.Name != gv.Group || v.Version != gv.Version {
				continue
			}
			for _, r := range v.Resources {
				list = append(list, apiResources(gv, r)...)
			}
		}
	}
	return list
}

func apiResources(gv schema.GroupVersion, r apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
	described := func(name string, kind *metav1.GroupVersionKind, verbs []string) metav1.APIResource {
		a := metav1.APIResource{Name: name, Namespaced: namespaced, Verbs: verbs}
		if kind != nil {
			a.Kind = kind.Kind
			if kind.Group != gv.Group || kind.Version != gv.Version {
				a.Group, a.Version = kind.Group, kind.Version
			}
		}
		return a
	}
	var list []metav1.APIResource
	if len(r.Verbs) > 0 {
		main := described(r.Resource, r.ResponseKind, r.Verbs)
		main.SingularName, main.ShortNames, main.Categories = r.SingularResource, r.ShortNames, r.Categories
		if r.ResponseKind != nil {
			main.StorageVersionHash = discovery.StorageVersionHash(gv.Group, gv.Version, r.ResponseKind.Kind)
		}
		list = append(list, main)
	}
	for _, s := range r.Subresources {
		list = append(list, described(r.Resource+"/"+s.Subresource, s.ResponseKind, s.Verbs))
	}
	return list
}

func (d *documents) groupResources() []*restmapper.APIGroupResources {
	var all []*restmapper.APIGroupResources
	for _, g := range d.groups {
		resources := &restmapper.APIGroupResources{Group: apiGroup(g), VersionedResources: map[string][]metav1.APIResource{}}
		for _, v := range g.Versions {
			resources.VersionedResources[v.Version] = d.resources(schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
		all = append(all, resources)
	}
	return all
}
