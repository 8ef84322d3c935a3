// Package openapi describes the APIs of each logical cluster to clients: the built-in types, and the custom resources
// that the cluster has. The description of a definition is built once, and documents once for each set of APIs.
package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// How many documents are kept in memory: those of version 2 are megabytes each, whole sets of version 3 as well.
const (
	maxVersions   = 1024
	maxSetsV3     = 64
	maxSetsV2     = 8
	discoveryPath = "/openapi/v3"
)

// OpenAPI answers for every logical cluster.
type OpenAPI struct {
	custom   func(logicalcluster.Name) []customresources.Installed
	static   func() *spec.Swagger
	versions *lru.Cache // of *spec3.OpenAPI, by definition and version
	v3       *lru.Cache // of *setV3, by set
	v2       *lru.Cache // of http.Handler, by set
}

// New returns OpenAPI over the custom resources of each cluster and the static document of the built-in types, which is
// asked for with the first request.
func New(custom *customresources.Handler, static func() *spec.Swagger) *OpenAPI {
	return &OpenAPI{custom: custom.List, static: static, versions: lru.New(maxVersions), v3: lru.New(maxSetsV3), v2: lru.New(maxSetsV2)}
}

// WithOpenAPI serves /openapi/v2 and /openapi/v3 of the cluster in the context. next serves those of built-in types.
func (o *OpenAPI) WithOpenAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		path := strings.TrimSuffix(r.URL.Path, "/")
		if !ok || (path != "/openapi/v2" && path != discoveryPath && !strings.HasPrefix(path, discoveryPath+"/")) {
			next.ServeHTTP(w, r)
			return
		}
		var h http.Handler
		var err error
		if path == "/openapi/v2" {
			h, err = o.documentV2(cluster.Name)
		} else {
			h, err = o.documentV3(cluster.Name, path, next)
		}
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func setKey(installed []customresources.Installed) [sha256.Size]byte {
	h := sha256.New()
	for _, i := range installed {
		fmt.Fprintln(h, i.Hash)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// setV3 holds the documents of the versions that custom resources are in.
type setV3 struct {
	service *handler3.OpenAPIService
	paths   map[string]bool
	root    []byte // the document that lists the paths of all versions
}

func (o *OpenAPI) documentV3(cluster logicalcluster.Name, path string, next http.Handler) (http.Handler, error) {
	installed := o.custom(cluster)
	key := setKey(installed)
	var set *setV3
	if found, ok := o.v3.Get(key); ok {
		set = found.(*setV3)
	} else {
		var err error
		if set, err = o.buildV3(installed, next); err != nil {
			return nil, err
		}
		o.v3.Add(key, set)
	}
	if path == discoveryPath {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(set.root)
		}), nil
	}
	if set.paths[strings.TrimPrefix(path, discoveryPath+"/")] {
		return http.HandlerFunc(set.service.HandleGroupVersion), nil
	}
	return next, nil
}

func (o *OpenAPI) buildV3(installed []customresources.Installed, next http.Handler) (*setV3, error) {
	byPath := map[string][]*spec3.OpenAPI{}
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if !v.Served {
				continue
			}
			document, err := o.version(i.Definition, v.Name)
			if err != nil {
				return nil, err
			}
			path := pathOf(schema.GroupVersion{Group: i.CRD.Spec.Group, Version: v.Name})
			byPath[path] = append(byPath[path], document)
		}
	}
	root := handler3.OpenAPIV3Discovery{}
	if err := fetch(next, discoveryPath, &root); err != nil {
		return nil, err
	}
	set := &setV3{service: handler3.NewOpenAPIService(), paths: map[string]bool{}}
	for path, documents := range byPath {
		if _, builtin := root.Paths[path]; builtin {
			document := &spec3.OpenAPI{}
			if err := fetch(next, discoveryPath+"/"+path, document); err != nil {
				return nil, err
			}
			documents = append([]*spec3.OpenAPI{document}, documents...)
		}
		merged, err := builder.MergeSpecsV3(documents...)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", path, err)
		}
		set.service.UpdateGroupVersion(path, merged)
		set.paths[path] = true
	}
	own := handler3.OpenAPIV3Discovery{}
	if err := fetch(http.HandlerFunc(set.service.HandleDiscovery), discoveryPath, &own); err != nil {
		return nil, err
	}
	for path, item := range own.Paths {
		root.Paths[path] = item
	}
	var err error
	set.root, err = json.Marshal(root)
	return set, err
}

// fetch reads a JSON document from a handler.
func fetch(h http.Handler, path string, into any) error {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Accept", "application/json")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		return fmt.Errorf("OpenAPI document %s: status %d", path, recorder.Code)
	}
	if err := json.NewDecoder(bytes.NewReader(recorder.Body.Bytes())).Decode(into); err != nil {
		return fmt.Errorf("OpenAPI document %s: %w", path, err)
	}
	return nil
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// version returns the document of one version of a definition.
func (o *OpenAPI) version(d *customresources.Definition, version string) (*spec3.OpenAPI, error) {
	key := d.Hash + "/" + version
	if found, ok := o.versions.Get(key); ok {
		return found.(*spec3.OpenAPI), nil
	}
	document, err := builder.BuildOpenAPIV3(d.CRD, version, builder.Options{V2: false, IncludeSelectableFields: true})
	if err != nil {
		return nil, fmt.Errorf("OpenAPI of %s: %w", d.CRD.Name, err)
	}
	o.versions.Add(key, document)
	return document, nil
}

func (o *OpenAPI) documentV2(cluster logicalcluster.Name) (http.Handler, error) {
	installed := o.custom(cluster)
	key := setKey(installed)
	if found, ok := o.v2.Get(key); ok {
		return found.(http.Handler), nil
	}
	var documents []*spec.Swagger
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if !v.Served {
				continue
			}
			document, err := builder.BuildOpenAPIV2(i.CRD, v.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				return nil, fmt.Errorf("OpenAPI of %s: %w", i.CRD.Name, err)
			}
			documents = append(documents, document)
		}
	}
	merged, err := builder.MergeSpecs(o.static(), documents...)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	handler.NewOpenAPIService(merged).RegisterOpenAPIVersionedService("/openapi/v2", mux)
	o.v2.Add(key, mux)
	return mux, nil
}
