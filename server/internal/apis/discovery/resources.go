package discovery

import (
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
)

// resourceOf describes one version of a custom resource.
func resourceOf(i customresources.Installed, version string) apidiscoveryv2.APIResourceDiscovery {
	crd, names := i.CRD, i.CRD.Status.AcceptedNames
	kind := &metav1.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: names.Kind}
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: names.Plural, SingularResource: names.Singular, Scope: apidiscoveryv2.ScopeCluster, ResponseKind: kind,
		Verbs:      []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		ShortNames: names.ShortNames, Categories: names.Categories,
	}
	verbs := func(subresource string) []string {
		if !i.CanBeWritten(subresource) {
			return []string{"get"}
		}
		return []string{"get", "patch", "update"}
	}
	switch {
	case !i.CanBeWritten(""):
		resource.Verbs = []string{"get", "list", "watch"}
	case i.Terminating:
		resource.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	}
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		resource.Scope = apidiscoveryv2.ScopeNamespace
	}
	subresources, err := apiextensionshelpers.GetSubresourcesForVersion(crd, version)
	if err != nil || subresources == nil {
		return resource
	}
	if subresources.Status != nil {
		resource.Subresources = append(resource.Subresources,
			apidiscoveryv2.APISubresourceDiscovery{Subresource: "status", ResponseKind: kind, Verbs: verbs("status")})
	}
	if subresources.Scale != nil {
		scale := &metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"}
		resource.Subresources = append(resource.Subresources,
			apidiscoveryv2.APISubresourceDiscovery{Subresource: "scale", ResponseKind: scale, Verbs: verbs("scale")})
	}
	return resource
}

// resourcesOf describes one version of a custom resource and its subresources in the form of an APIResourceList. prefix is the
// prefix of the string whose hash identifies the storage version.
func resourcesOf(i customresources.Installed, version, prefix string) []metav1.APIResource {
	gv := schema.GroupVersion{Group: i.CRD.Spec.Group, Version: version}
	list := flatten(gv, []apidiscoveryv2.APIResourceDiscovery{resourceOf(i, version)})
	for _, v := range i.CRD.Spec.Versions {
		if v.Storage && v.Served {
			list[0].StorageVersionHash = discovery.StorageVersionHash(prefix+gv.Group, v.Name, i.CRD.Spec.Names.Kind)
		}
	}
	return list
}

// flatten lists resources and their subresources.
func flatten(gv schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	var list []metav1.APIResource
	for _, r := range resources {
		namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
		if len(r.Verbs) > 0 {
			main := described(gv, r.Resource, namespaced, r.ResponseKind, r.Verbs)
			main.SingularName, main.ShortNames, main.Categories = r.SingularResource, r.ShortNames, r.Categories
			list = append(list, main)
		}
		for _, s := range r.Subresources {
			list = append(list, described(gv, r.Resource+"/"+s.Subresource, namespaced, s.ResponseKind, s.Verbs))
		}
	}
	return list
}

func described(gv schema.GroupVersion, name string, namespaced bool, kind *metav1.GroupVersionKind, verbs []string) metav1.APIResource {
	a := metav1.APIResource{Name: name, Namespaced: namespaced, Verbs: verbs}
	if kind != nil {
		a.Kind = kind.Kind
		if kind.Group != gv.Group || kind.Version != gv.Version {
			a.Group, a.Version = kind.Group, kind.Version
		}
	}
	return a
}

// Resource is one resource in the version that a cluster prefers.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      sets.Set[string]
}

// preferred lists each resource once, in the first version of its group that has it.
func preferred(groups []apidiscoveryv2.APIGroupDiscovery) []Resource {
	var list []Resource
	seen := sets.New[schema.GroupResource]()
	for _, g := range groups {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			for _, r := range flatten(gv, v.Resources) {
				if strings.Contains(r.Name, "/") || seen.Has(gv.WithResource(r.Name).GroupResource()) {
					continue
				}
				seen.Insert(gv.WithResource(r.Name).GroupResource())
				list = append(list, Resource{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced,
					Verbs: sets.New(r.Verbs...)})
			}
		}
	}
	return list
}
