package fake

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// sharing holds the exports and bindings of a logical cluster.
type sharing struct {
	exports     []apisv1alpha2.APIExport
	bindings    []*apisv1alpha2.APIBinding
	definitions []string
	resources   []metav1.APIResourceList
}

// Export adds an export to the workspace with a path.
func (s *Server) Export(path, name string, claims ...apisv1alpha2.PermissionClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	export := apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apisv1alpha2.APIExportSpec{PermissionClaims: claims}}
	s.clusters[path].exports = append(s.clusters[path].exports, export)
}

// Bind adds a binding to the workspace with a path.
func (s *Server) Bind(path string, binding *apisv1alpha2.APIBinding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters[path].bindings = append(s.clusters[path].bindings, binding)
}

// Bound returns a copy of the binding of that name in the workspace with a path, nil if there is none.
func (s *Server) Bound(path, name string) *apisv1alpha2.APIBinding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[path].binding(name).DeepCopy()
}

// Serve makes the workspace with a path serve resources, some of them by CustomResourceDefinitions of that name.
func (s *Server) Serve(path string, resources []metav1.APIResourceList, definitions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters[path].resources, s.clusters[path].definitions = resources, definitions
}

func (c *cluster) binding(name string) *apisv1alpha2.APIBinding {
	i := slices.IndexFunc(c.bindings, func(b *apisv1alpha2.APIBinding) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return c.bindings[i]
}

// serveSharing serves requests for exports, bindings and discovery. It reports whether the request was one.
func (s *Server) serveSharing(w http.ResponseWriter, r *http.Request, c *cluster, api string) bool {
	const group = "apis/apis.kcp.io/v1alpha2/"
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, name, _ := strings.Cut(strings.TrimPrefix(api, group), "/")
	switch {
	case api == "api" || api == "apis":
		s.serveGroups(w, c, api)
	case api == "apis/apiextensions.k8s.io/v1/customresourcedefinitions":
		s.serveDefinitions(w, c)
	case strings.HasPrefix(api, group) && s.Hidden[resource]:
		refuse(w, apierrors.NewForbidden(apisv1alpha2.Resource(resource), name, nil))
	case strings.HasPrefix(api, group+"apiexports"):
		s.serveExports(w, c, name)
	case strings.HasPrefix(api, group+"apibindings"):
		s.serveBindings(w, r, c, name)
	default:
		for _, list := range c.resources {
			if api == "apis/"+list.GroupVersion || api == "api/"+list.GroupVersion {
				list.TypeMeta = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
				reply(w, http.StatusOK, list)
				return true
			}
		}
		return false
	}
	return true
}

// serveGroups lists the groups in the unaggregated form of discovery.
func (s *Server) serveGroups(w http.ResponseWriter, c *cluster, api string) {
	versions := metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{}}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, list := range c.resources {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion) // tests use valid versions
		if gv.Group == "" {
			versions.Versions = append(versions.Versions, gv.Version)
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: gv.Version}
		i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		if i < 0 {
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: version})
			i = len(groups.Groups) - 1
		}
		groups.Groups[i].Versions = append(groups.Groups[i].Versions, version)
	}
	if api == "api" {
		reply(w, http.StatusOK, versions)
		return
	}
	reply(w, http.StatusOK, groups)
}

func (s *Server) serveDefinitions(w http.ResponseWriter, c *cluster) {
	if s.Hidden["customresourcedefinitions"] {
		refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "", nil))
		return
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	for _, name := range c.definitions {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	reply(w, http.StatusOK, list)
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: apisv1alpha2.SchemeGroupVersion.String()}
}

func (s *Server) serveExports(w http.ResponseWriter, c *cluster, name string) {
	if name == "" {
		reply(w, http.StatusOK, apisv1alpha2.APIExportList{TypeMeta: typeOf("APIExportList"), Items: c.exports})
		return
	}
	for _, export := range c.exports {
		if export.Name == name {
			export.TypeMeta = typeOf("APIExport")
			reply(w, http.StatusOK, export)
			return
		}
	}
	refuse(w, apierrors.NewNotFound(apisv1alpha2.Resource("apiexports"), name))
}

func (s *Server) serveBindings(w http.ResponseWriter, r *http.Request, c *cluster, name string) {
	existing := c.binding(name)
	sent := &apisv1alpha2.APIBinding{}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(sent); err != nil || sent.Kind != "APIBinding" {
			refuse(w, apierrors.NewBadRequest("this is no APIBinding"))
			return
		}
	}
	switch {
	case r.Method == http.MethodPost && c.binding(sent.Name) != nil:
		refuse(w, apierrors.NewAlreadyExists(apisv1alpha2.Resource("apibindings"), sent.Name))
	case r.Method == http.MethodPost:
		s.version++
		sent.ResourceVersion = strconv.Itoa(s.version)
		if s.Binding != nil {
			s.Binding(sent)
		}
		if r.URL.Query().Get("dryRun") == "" {
			c.bindings = append(c.bindings, sent)
		}
		reply(w, http.StatusCreated, sent)
	case name == "":
		list := apisv1alpha2.APIBindingList{TypeMeta: typeOf("APIBindingList")}
		for _, b := range c.bindings {
			list.Items = append(list.Items, *b)
		}
		reply(w, http.StatusOK, list)
	case existing == nil:
		refuse(w, apierrors.NewNotFound(apisv1alpha2.Resource("apibindings"), name))
	case r.Method == http.MethodPut && sent.ResourceVersion != existing.ResourceVersion:
		refuse(w, apierrors.NewConflict(apisv1alpha2.Resource("apibindings"), name, nil))
	case r.Method == http.MethodPut:
		s.version++
		existing.Spec, existing.ResourceVersion = sent.Spec, strconv.Itoa(s.version)
		reply(w, http.StatusOK, existing)
	default:
		if s.Binding != nil {
			s.Binding(existing)
		}
		existing.TypeMeta = typeOf("APIBinding")
		reply(w, http.StatusOK, existing)
	}
}
