package openapi

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// setV3 holds the documents of one set of APIs.
type setV3 struct {
	groups map[string]*groupV3 // by path; other paths have the documents of the built-in types
	paths  sets.Set[string]    // all of them
	root   []byte              // the document that lists the paths of all versions
	etag   string
}

// groupV3 is the document of one path: a version of a group that has custom resources, or what a view serves beside resources.
type groupV3 struct {
	service *handler3.OpenAPIService
	item    handler3.OpenAPIV3DiscoveryGroupVersion
}

func (o *OpenAPI) documentV3(cluster logicalcluster.Name, path string, next http.Handler) (http.Handler, error) {
	installed, builtin := o.custom(cluster), o.described(cluster)
	set, err := cached(o, o.v3, setKey(installed)+strings.Join(builtin, " "),
		func() (*setV3, error) { return o.buildV3(installed, builtin, next) })
	if err != nil {
		return nil, err
	}
	if path == pathV3 {
		return http.HandlerFunc(set.serveRoot), nil
	}
	version := strings.TrimPrefix(path, pathV3+"/")
	if group, ok := set.groups[version]; ok {
		return http.HandlerFunc(group.service.HandleGroupVersion), nil
	}
	if !set.paths.Has(version) { // upstream would respond with success and an empty body
		return http.HandlerFunc(notDescribed), nil
	}
	return next, nil
}

func notDescribed(w http.ResponseWriter, r *http.Request) {
	responsewriters.WriteRawJSON(http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "no resource of this logical cluster belongs to this document; " + pathV3 + " lists all documents",
	}, w)
}

func (s *setV3) serveRoot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", strconv.Quote(s.etag))
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, pathV3, time.Time{}, bytes.NewReader(s.root))
}

// member is one version of a definition.
type member struct {
	definition *customresources.Definition
	version    string
}

// described returns the paths of the described built-in types; nil means all.
func (o *OpenAPI) described(cluster logicalcluster.Name) []string {
	if o.builtin == nil {
		return nil
	}
	paths := []string{}
	for gv := range o.builtin(cluster) {
		paths = append(paths, pathOf(gv))
	}
	slices.Sort(paths)
	return paths
}

func (o *OpenAPI) buildV3(installed []customresources.Installed, described []string, next http.Handler) (*setV3, error) {
	members := map[string][]member{}
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if v.Served {
				path := pathOf(schema.GroupVersion{Group: i.CRD.Spec.Group, Version: v.Name})
				members[path] = append(members[path], member{i.Definition, v.Name})
			}
		}
	}
	root := handler3.OpenAPIV3Discovery{}
	if err := fetch(next, pathV3, &root); err != nil {
		return nil, err
	}
	if root.Paths == nil {
		root.Paths = map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}
	}
	if described != nil {
		maps.DeleteFunc(root.Paths, func(path string, _ handler3.OpenAPIV3DiscoveryGroupVersion) bool {
			return !slices.Contains(described, path)
		})
	}
	set := &setV3{groups: map[string]*groupV3{}}
	for path, list := range members {
		base := http.Handler(nil)
		if _, builtin := root.Paths[path]; builtin {
			base = next
		}
		group, err := o.group(path, list, base)
		if err != nil {
			return nil, err
		}
		set.groups[path] = group
		root.Paths[path] = group.item
	}
	if described != nil {
		beside, err := o.pathsBeside(sets.KeySet(root.Paths))
		if err != nil {
			return nil, err
		}
		for path, group := range beside {
			set.groups[path], root.Paths[path] = group, group.item
		}
	}
	set.paths = sets.KeySet(root.Paths)
	var err error
	if set.root, err = json.Marshal(root); err != nil {
		return nil, err
	}
	set.etag = fmt.Sprintf("%X", sha512.Sum512(set.root))
	return set, nil
}

// group returns the document of one path; base serves the built-in types of it, if there are any.
func (o *OpenAPI) group(path string, members []member, base http.Handler) (*groupV3, error) {
	key := fmt.Sprint(path, base != nil)
	for _, m := range members {
		key += " " + m.definition.Hash
	}
	return cached(o, o.groups, key, func() (*groupV3, error) {
		merged := &spec3.OpenAPI{}
		if base != nil {
			if err := fetch(base, pathV3+"/"+path, merged); err != nil {
				return nil, err
			}
		}
		for _, m := range members {
			document, err := o.version(m.definition, m.version)
			if err != nil {
				return nil, err
			}
			if merged.Version == "" {
				merged.Version, merged.Info = document.Version, document.Info
			}
			next, err := builder.MergeSpecsV3(merged, document)
			if err != nil { // two kinds of one name: the first one is described
				klog.V(2).InfoS("Omitting the OpenAPI of a definition that conflicts with others", decisionlog.Name, m.definition.CRD.Name,
					decisionlog.Path, path, decisionlog.Reason, err)
				continue
			}
			merged = next
		}
		return newGroupV3(path, merged)
	})
}

// newGroupV3 returns the handler of a document at a path.
func newGroupV3(path string, document *spec3.OpenAPI) (*groupV3, error) {
	g := &groupV3{service: handler3.NewOpenAPIService()}
	g.service.UpdateGroupVersion(path, document)
	own := handler3.OpenAPIV3Discovery{}
	err := fetch(http.HandlerFunc(g.service.HandleDiscovery), pathV3, &own)
	g.item = own.Paths[path]
	return g, err
}

// version returns the document of one version of a definition.
func (o *OpenAPI) version(d *customresources.Definition, version string) (*spec3.OpenAPI, error) {
	return cached(o, o.versions, d.Hash+"/"+version, func() (*spec3.OpenAPI, error) {
		document, err := builder.BuildOpenAPIV3(d.CRD, version, builder.Options{IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", d.CRD.Name, err)
		}
		if d.CRD.Spec.Group == "" {
			paths := make(map[string]*spec3.Path, len(document.Paths.Paths))
			for path, item := range document.Paths.Paths {
				paths[corePath(path)] = item
			}
			document.Paths = &spec3.Paths{VendorExtensible: document.Paths.VendorExtensible, Paths: paths}
		}
		for path, item := range document.Paths.Paths {
			if !d.CanBeWritten(subresourceOf(path)) {
				item.Post, item.Put, item.Patch, item.Delete = nil, nil, nil, nil
			}
		}
		return document, nil
	})
}
