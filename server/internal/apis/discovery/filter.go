package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/routes"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// filter serves requests for the APIs of the cluster in the context.
type filter struct {
	*Discovery
	next       http.Handler
	core, root http.Handler
	builtin    sync.Map // the []metav1.APIResource that next lists, by schema.GroupVersion; they do not change
}

// WithDiscovery serves requests for the APIs of the cluster in the context, and passes on all others, including those
// for which the built-in documents of next are correct.
func (d *Discovery) WithDiscovery(next http.Handler) http.Handler {
	f := &filter{Discovery: d, next: next}
	part := func(serve func(*documents, http.ResponseWriter, *http.Request)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cluster, _ := logicalcluster.From(r.Context())
			serve(d.documents(cluster), w, r)
		})
	}
	if d.plain {
		f.core = part(f.serveCoreVersions)
		f.root = part(func(d *documents, w http.ResponseWriter, r *http.Request) { d.named.ServeHTTP(w, r) })
		return f
	}
	f.core = aggregated.WrapAggregatedDiscoveryToHandler(part(f.serveCoreVersions),
		part(func(d *documents, w http.ResponseWriter, r *http.Request) { d.aggregatedCore().ServeHTTP(w, r) }), nil)
	f.root = aggregated.WrapAggregatedDiscoveryToHandler(part(func(d *documents, w http.ResponseWriter,
		r *http.Request) {
		d.named.ServeHTTP(w, r)
	}),
		part(func(d *documents, w http.ResponseWriter, r *http.Request) { d.aggregatedNamed().ServeHTTP(w, r) }), nil)
	return f
}

func (f *filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cluster, ok := logicalcluster.From(r.Context())
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if ok && r.Method == http.MethodGet && r.URL.Path == "/" && f.isOfViews() {
		routes.IndexLister{StatusCode: http.StatusOK, PathProvider: f.documents(cluster)}.ServeHTTP(w, r)
		return
	}
	if !ok || r.Method != http.MethodGet || (parts[0] != "api" && parts[0] != "apis") {
		f.next.ServeHTTP(w, r)
		return
	}
	var h http.Handler
	var err error
	switch {
	case parts[0] == "api" && len(parts) == 1:
		h = f.core
	case parts[0] == "api" && len(parts) == 2:
		h, err = f.version(f.documents(cluster), schema.GroupVersion{Version: parts[1]}, r)
	case parts[0] == "api":
	case len(parts) == 1:
		h = f.root
	case len(parts) == 2:
		h = f.documents(cluster).group(parts[1])
	case len(parts) == 3:
		h, err = f.version(f.documents(cluster), schema.GroupVersion{Group: parts[1], Version: parts[2]}, r)
	}
	switch {
	case err != nil:
		responsewriters.InternalError(w, r, err)
	case h != nil:
		h.ServeHTTP(w, r)
	case f.isOfViews():
		missing := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, true)
		responsewriters.ErrorNegotiated(missing, apiextensionsapiserver.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
	default:
		f.next.ServeHTTP(w, r)
	}
}

// serveCoreVersions answers /api for clients that do not ask for aggregated discovery.
func (f *filter) serveCoreVersions(d *documents, w http.ResponseWriter, r *http.Request) {
	versions := d.versions("")
	if len(versions) == 1 && f.isBuiltin(schema.GroupVersion{Version: versions[0]}) {
		f.next.ServeHTTP(w, r)
		return
	}
	responsewriters.WriteObjectNegotiated(apiextensionsapiserver.Codecs, negotiation.DefaultEndpointRestrictions,
		schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK,
		&metav1.APIVersions{Versions: versions}, false)
}

// version returns the handler of /apis/<group>/<version> or /api/v1, or nil if upstream's handler is correct.
func (f *filter) version(d *documents, gv schema.GroupVersion, r *http.Request) (http.Handler, error) {
	custom, ok := d.custom[gv]
	if !ok {
		return nil, nil
	}
	list, err := f.builtinResources(gv, r)
	if err != nil {
		return nil, err
	}
	list = append(list[:len(list):len(list)], custom...)
	return discovery.NewAPIVersionHandler(apiextensionsapiserver.Codecs, gv,
		discovery.APIResourceListerFunc(func() []metav1.APIResource { return list })), nil
}

// builtinResources returns the resources that next serves in a version to which definitions add resources.
func (f *filter) builtinResources(gv schema.GroupVersion, r *http.Request) ([]metav1.APIResource, error) {
	if !f.isBuiltin(gv) {
		return nil, nil
	}
	if found, ok := f.builtin.Load(gv); ok {
		return found.([]metav1.APIResource), nil
	}
	inner := r.Clone(r.Context())
	inner.Header = http.Header{"Accept": {"application/json"}}
	recorder := httptest.NewRecorder()
	f.next.ServeHTTP(recorder, inner)
	var list metav1.APIResourceList
	if recorder.Code != http.StatusOK {
		return nil, fmt.Errorf("built-in resources of %s: status %d", gv, recorder.Code)
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
		return nil, fmt.Errorf("built-in resources of %s: %w", gv, err)
	}
	f.builtin.Store(gv, list.APIResources)
	return list.APIResources, nil
}

func (f *filter) isBuiltin(gv schema.GroupVersion) bool {
	for _, g := range f.Discovery.builtin {
		for _, v := range g.Versions {
			if g.Name == gv.Group && v.Version == gv.Version {
				return true
			}
		}
	}
	return false
}
