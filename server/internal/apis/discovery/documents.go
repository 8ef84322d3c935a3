package discovery

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/restmapper"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
)

// documents are the discovery documents of one set of APIs. They are built once and shared by all clusters with that
// set.
type documents struct {
	// groups holds every group with its versions; the core group has no name.
	groups []apidiscoveryv2.APIGroupDiscovery
	// custom holds the resources of definitions, as lists of one version describe them.
	custom map[schema.GroupVersion][]metav1.APIResource
	// changedGroups differ from the built-in groups; upstream serves the others.
	changedGroups map[string]bool

	aggregatedCore, aggregatedNamed func() aggregatedDocument
	named                           http.Handler
	preferred                       func() []Resource
	mapper                          func() meta.RESTMapper
}

// builtinResource is a resource that compiled code serves.
type builtinResource struct {
	version  schema.GroupVersion
	resource apidiscoveryv2.APIResourceDiscovery
}

// build merges the definitions, and single resources, into the built-in groups. prefix is that of resourcesOf.
func build(builtin []apidiscoveryv2.APIGroupDiscovery, claimed []builtinResource, installed []customresources.Installed,
	prefix string) *documents {
	d := &documents{changedGroups: map[string]bool{}, custom: map[schema.GroupVersion][]metav1.APIResource{}}
	for _, group := range builtin {
		copied := group
		copied.Versions = slices.Clone(group.Versions)
		d.groups = append(d.groups, copied)
	}
	for _, r := range claimed {
		d.add(r.version, r.resource)
		d.custom[r.version] = append(d.custom[r.version], flatten(r.version, []apidiscoveryv2.APIResourceDiscovery{r.resource})...)
	}
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if v.Served {
				gv := schema.GroupVersion{Group: i.CRD.Spec.Group, Version: v.Name}
				d.add(gv, resourceOf(i, v.Name))
				d.custom[gv] = append(d.custom[gv], resourcesOf(i, v.Name, prefix)...)
			}
		}
	}
	slices.SortFunc(d.groups[len(builtin):], func(a, b apidiscoveryv2.APIGroupDiscovery) int { return strings.Compare(a.Name, b.Name) })
	for g := range d.groups {
		if !d.changedGroups[d.groups[g].Name] {
			continue
		}
		slices.SortStableFunc(d.groups[g].Versions, func(a, b apidiscoveryv2.APIVersionDiscovery) int {
			return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
		})
	}
	d.serve()
	d.preferred = sync.OnceValue(func() []Resource { return preferred(d.groups) })
	d.mapper = sync.OnceValue(func() meta.RESTMapper { return restmapper.NewDiscoveryRESTMapper(d.groupResources()) })
	return d
}

func (d *documents) add(gv schema.GroupVersion, resource apidiscoveryv2.APIResourceDiscovery) {
	d.changedGroups[gv.Group] = true
	g := slices.IndexFunc(d.groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == gv.Group })
	if g < 0 {
		g = len(d.groups)
		d.groups = append(d.groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
	}
	versions := &d.groups[g].Versions
	v := slices.IndexFunc(*versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == gv.Version })
	if v < 0 {
		v = len(*versions)
		*versions = append(*versions,
			apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
	}
	(*versions)[v].Resources = append(slices.Clip((*versions)[v].Resources), resource)
}

// serve prepares the documents that are requested most.
func (d *documents) serve() {
	var core, named []apidiscoveryv2.APIGroupDiscovery
	var groups []metav1.APIGroup
	for _, group := range d.groups {
		if group.Name == "" {
			core = append(core, group)
			continue
		}
		named = append(named, group)
		groups = append(groups, apiGroup(group))
	}
	d.named = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Upstream's handler omits the version from protobuf responses.
		responsewriters.WriteObjectNegotiated(apiextensionsapiserver.Codecs, negotiation.DefaultEndpointRestrictions,
			schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK,
			&metav1.APIGroupList{Groups: groups}, false)
	})
	d.aggregatedCore = sync.OnceValue(func() aggregatedDocument { return newAggregated(core) })
	d.aggregatedNamed = sync.OnceValue(func() aggregatedDocument { return newAggregated(named) })
}

// aggregatedDocument describes several groups at once.
type aggregatedDocument struct {
	list apidiscoveryv2.APIGroupDiscoveryList
	etag string
}

// aggregatedCodecs encode the version that upstream serves.
var aggregatedCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()

func newAggregated(groups []apidiscoveryv2.APIGroupDiscovery) aggregatedDocument {
	d := aggregatedDocument{list: apidiscoveryv2.APIGroupDiscoveryList{Items: groups}}
	if content, err := json.Marshal(d.list); err == nil {
		d.etag = fmt.Sprintf("%X", sha512.Sum512(content))
	}
	return d
}

func (d aggregatedDocument) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mediaType, _, err := negotiation.NegotiateOutputMediaType(r, aggregatedCodecs, aggregated.DiscoveryEndpointRestrictions)
	if err != nil || mediaType.Convert == nil {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	aggregated.ServeHTTPWithETag(&d.list, d.etag, mediaType.Convert.GroupVersion(), aggregatedCodecs, w, r)
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

// group returns the handler of /apis/<group>, or nil if upstream's handler is correct.
func (d *documents) group(name string) http.Handler {
	if !d.changedGroups[name] {
		return nil
	}
	for _, g := range d.groups {
		if g.Name == name {
			return discovery.NewAPIGroupHandler(apiextensionsapiserver.Codecs, apiGroup(g))
		}
	}
	return nil
}

// ListedPaths returns the paths that a view lists.
func (d *documents) ListedPaths() []string {
	paths := []string{"/api", "/apis", "/openapi/v2", "/openapi/v3", "/version"}
	for _, g := range d.groups {
		base := "/apis/" + g.Name
		if g.Name == "" {
			base = "/api"
		} else {
			paths = append(paths, base)
		}
		for _, v := range g.Versions {
			paths = append(paths, base+"/"+v.Version)
		}
	}
	slices.Sort(paths)
	return paths
}

// versions returns the versions of a group, the preferred one first.
func (d *documents) versions(group string) []string {
	versions := []string{} // the core group of a view can be empty
	for _, g := range d.groups {
		for _, v := range g.Versions {
			if g.Name == group {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions
}

func (d *documents) groupResources() []*restmapper.APIGroupResources {
	var all []*restmapper.APIGroupResources
	for _, g := range d.groups {
		resources := &restmapper.APIGroupResources{Group: apiGroup(g), VersionedResources: map[string][]metav1.APIResource{}}
		for _, v := range g.Versions {
			resources.VersionedResources[v.Version] = flatten(schema.GroupVersion{Group: g.Name, Version: v.Version}, v.Resources)
		}
		all = append(all, resources)
	}
	return all
}
