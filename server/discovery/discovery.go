// Package discovery tells clients which APIs a logical cluster serves. Documents are built once for each distinct set of
// APIs, and shared by all clusters that have it.
package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxSets bounds how many sets of APIs have documents in memory.
const maxSets = 256

// Discovery answers for every logical cluster.
type Discovery struct {
	builtin []apidiscoveryv2.APIGroupDiscovery
	custom  func(logicalcluster.Name) []customresources.Installed
	all     func() []*customresources.Definition
	sets    *lru.Cache // of *documents, by the hash of the set
}

// New returns discovery over what core and named, upstream's aggregated discovery of /api and /apis, describe, and over
// the custom resources of each cluster.
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

// read asks a handler of aggregated discovery for its document.
func read(source http.Handler) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	recorder := httptest.NewRecorder()
	source.ServeHTTP(recorder, request)
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

func (d *Discovery) documents(cluster logicalcluster.Cluster) *documents {
	installed := d.custom(cluster.Name) // of the wildcard: what every cluster has
	key := setKey(installed)
	if found, ok := d.sets.Get(key); ok {
		return found.(*documents)
	}
	built := build(d.builtin, installed)
	d.sets.Add(key, built)
	return built
}

// setKey identifies a set of APIs by its content.
func setKey(installed []customresources.Installed) [sha256.Size]byte {
	h := sha256.New()
	for _, i := range installed {
		fmt.Fprintf(h, "%s %t\n", i.Hash, i.Terminating)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// WithDiscovery answers requests for the APIs of the cluster in the context, and passes on all others, among them those
// for which the built-in documents of next are right.
func (d *Discovery) WithDiscovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		if h := d.handler(cluster, r.URL.Path, next); ok && h != nil && r.Method == http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Discovery) handler(cluster logicalcluster.Cluster, path string, next http.Handler) http.Handler {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) == 1:
		return aggregated.WrapAggregatedDiscoveryToHandler(next, d.documents(cluster).aggregatedCore, nil)
	case parts[0] == "api" && len(parts) == 2:
		return d.documents(cluster).version(schema.GroupVersion{Version: parts[1]})
	case parts[0] != "apis" || len(parts) > 3:
		return nil
	}
	documents := d.documents(cluster)
	switch len(parts) {
	case 1:
		return aggregated.WrapAggregatedDiscoveryToHandler(documents.named, documents.aggregatedNamed, nil)
	case 2:
		return documents.group(parts[1])
	default:
		return documents.version(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
}

// Resource is one resource in the version that a cluster prefers.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      sets.Set[string]
}

// Resources returns the resources of the context's cluster, each in its preferred version, without subresources.
func (d *Discovery) Resources(ctx context.Context) ([]Resource, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	return preferred(d.documents(logicalcluster.Cluster{Name: cluster})), nil
}

// AllResources returns every resource that some cluster of the shard serves, each in one version.
func (d *Discovery) AllResources() []Resource {
	var installed []customresources.Installed
	for _, definition := range d.all() {
		installed = append(installed, customresources.Installed{Definition: definition})
	}
	return preferred(build(d.builtin, installed))
}

func preferred(d *documents) []Resource {
	var list []Resource
	seen := sets.New[schema.GroupResource]()
	for _, g := range d.groups {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			for _, r := range d.resources(gv) {
				if strings.Contains(r.Name, "/") || seen.Has(gv.WithResource(r.Name).GroupResource()) {
					continue
				}
				seen.Insert(gv.WithResource(r.Name).GroupResource())
				list = append(list, Resource{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Verbs: sets.New(r.Verbs...)})
			}
		}
	}
	return list
}

// RESTMapper returns the mapper of the context's cluster.
func (d *Discovery) RESTMapper(ctx context.Context) (meta.RESTMapper, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	return d.documents(logicalcluster.Cluster{Name: cluster}).mapper(), nil
}
