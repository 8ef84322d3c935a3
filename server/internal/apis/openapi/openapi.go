// Package openapi describes the APIs of each logical cluster to clients: the built-in types, and the custom resources
// that the cluster has. The description of a definition is built once, and documents once for each set of APIs.
package openapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// How many documents are cached in memory: each document of version 2 takes megabytes.
const (
	maxVersions   = 1024
	maxConverters = 64
	maxGroups     = 512
	maxSetsV3     = 256
	maxSetsV2     = 8
)

const (
	pathV2 = "/openapi/v2"
	pathV3 = "/openapi/v3"
)

// OpenAPI serves the OpenAPI documents of every logical cluster.
type OpenAPI struct {
	custom     func(logicalcluster.Name) []customresources.Installed
	static     func() *spec.Swagger
	builtin    func(logicalcluster.Name) sets.Set[schema.GroupVersion] // the described versions; nil means all, outside of views
	versions   *lru.Cache                                              // of *spec3.OpenAPI, by definition and version
	converters *lru.Cache                                              // of managedfields.TypeConverter, by definition and version
	groups     *lru.Cache                                              // of *groupV3, by path and definitions
	v3         *lru.Cache                                              // of *setV3, by set
	v2         *lru.Cache                                              // of http.Handler, by set
	flight     *singleflight.Group
}

// New returns OpenAPI of the custom resources of each cluster and of the built-in types. It reads the static document
// of the built-in types on the first request.
func New(custom *customresources.Handler, static func() *spec.Swagger) *OpenAPI {
	return newOpenAPI(custom.List, static)
}

// Of returns OpenAPI of only the custom resources that list returns: pass NoBuiltIn to its WithOpenAPI.
func Of(list func(logicalcluster.Name) []customresources.Installed) *OpenAPI {
	return ForViews(list, func(logicalcluster.Name) sets.Set[schema.GroupVersion] { return nil })
}

// ForViews returns OpenAPI of custom resources, and of the versions of built-in types that builtin returns. Version 2, a
// single document, contains only the custom resources.
func ForViews(custom func(logicalcluster.Name) []customresources.Installed,
	builtin func(logicalcluster.Name) sets.Set[schema.GroupVersion]) *OpenAPI {
	o := newOpenAPI(custom, empty)
	o.builtin = builtin
	return o
}

func empty() *spec.Swagger {
	info := &spec.Info{InfoProps: spec.InfoProps{Title: "kcp", Version: "v1"}}
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Info: info, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: spec.Definitions{}}}
}

func newOpenAPI(custom func(logicalcluster.Name) []customresources.Installed, static func() *spec.Swagger) *OpenAPI {
	return &OpenAPI{
		custom: custom, static: static, flight: &singleflight.Group{},
		versions: lru.New(maxVersions), converters: lru.New(maxConverters), groups: lru.New(maxGroups), v3: lru.New(maxSetsV3),
		v2: lru.New(maxSetsV2),
	}
}

// WithOpenAPI serves /openapi/v2 and /openapi/v3 of the cluster in the context. next serves the documents of built-in
// types.
func (o *OpenAPI) WithOpenAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		path := strings.TrimSuffix(r.URL.Path, "/")
		var h http.Handler
		var err error
		switch {
		case ok && path == pathV2:
			h, err = o.documentV2(cluster.Name)
		case ok && (path == pathV3 || strings.HasPrefix(path, pathV3+"/")):
			h, err = o.documentV3(cluster.Name, path, next)
		default:
			h = next
		}
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// setKey identifies a set of APIs by its content.
func setKey(installed []customresources.Installed) string {
	h := sha256.New()
	for _, i := range installed {
		fmt.Fprintln(h, i.Hash)
	}
	return string(h.Sum(nil))
}

// cached returns the value in a cache, or the result of build; build runs once at a time for each key.
func cached[T any](o *OpenAPI, cache *lru.Cache, key string, build func() (T, error)) (T, error) {
	if found, ok := cache.Get(key); ok {
		return found.(T), nil
	}
	built, err, _ := o.flight.Do(fmt.Sprintf("%p %s", cache, key), func() (any, error) {
		built, err := build()
		if err == nil {
			cache.Add(key, built)
		}
		return built, err
	})
	if err != nil {
		var none T
		return none, err
	}
	return built.(T), nil
}

// fetch requests a JSON document from a handler.
func fetch(h http.Handler, path string, into any) error {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Accept", "application/json")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		return fmt.Errorf("OpenAPI document %s: status %d", path, recorder.Code)
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), into); err != nil {
		return fmt.Errorf("OpenAPI document %s: %w", path, err)
	}
	return nil
}

// pathOf returns where a version is served, without the leading slash.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// subresourceOf returns the subresource in a path of a document.
func subresourceOf(path string) string {
	_, subresource, _ := strings.Cut(path, "/{name}/")
	return subresource
}

// corePath corrects a path of upstream's builder, which puts every group below /apis.
func corePath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/apis//"); ok {
		return "/api/" + rest
	}
	return path
}
