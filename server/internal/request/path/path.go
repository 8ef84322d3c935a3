// Package path is the first step of a request: it moves the logical cluster from the URL into the context.
package path

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const prefix = "/clusters/"

// unscoped are the paths that belong to the server, not to a logical cluster.
var unscoped = map[string]bool{"/healthz": true, "/livez": true, "/readyz": true, "/metrics": true, "/version": true, "/": true, "": true}

// IsServerPath reports whether a path without /clusters/ is served: health, metrics, version and profiles of the server.
func IsServerPath(path string) bool {
	first := path
	if i := strings.IndexByte(strings.TrimPrefix(path, "/"), '/'); i >= 0 {
		first = path[:i+1]
	}
	switch first {
	case "/healthz", "/livez", "/readyz", "/metrics", "/debug", "/.well-known", "/openid":
		return true
	}
	return unscoped[path]
}

// Places resolves paths of workspaces and names of logical clusters.
type Places interface {
	// Find returns the place of a path, and whether the path exists. The error is for clients.
	Find(r *http.Request, path string) (pathindex.Place, bool, error)
}

// WithCluster serves /clusters/<name>/… as /… in the context of that logical cluster. It serves the paths of the server itself without
// a cluster, and responds to other paths without a cluster with 404. A name with a colon is the path of a workspace, which places resolves.
// The context of a mounted workspace has the mount instead of a cluster. s encodes the errors.
func WithCluster(next http.Handler, s runtime.NegotiatedSerializer, places Places) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(err error) { responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r) }
		if !strings.HasPrefix(r.URL.Path, prefix) {
			if !IsServerPath(r.URL.Path) {
				refuse(notFound("the server serves logical clusters at /clusters/<name>/; this path names none"))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		cluster, rest, err := split(r.URL)
		if err != nil {
			refuse(err)
			return
		}
		ctx := r.Context()
		if !cluster.Wildcard && !cluster.Name.IsSystem() {
			if ctx, cluster.Name, err = enter(r, places, string(cluster.Name)); err != nil {
				refuse(err)
				return
			}
		}
		if logger := decisionlog.ForDecision(ctx); logger.Enabled() {
			logger.Info("Resolved path", decisionlog.Path, r.URL.Path, decisionlog.Cluster, cluster.String())
		}
		if rest == "/metrics" || strings.HasPrefix(rest, "/metrics/") {
			refuse(notImplemented("metrics are those of the server, at /metrics; a logical cluster has none of its own"))
			return
		}
		if cluster.Wildcard && r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuse(methodNotAllowed(fmt.Sprintf("the logical cluster %q stands for all of them and can only be listed and watched", "*")))
			return
		}
		if cluster != (logicalcluster.Cluster{}) { // a mounted workspace has no cluster
			ctx = logicalcluster.WithCluster(ctx, cluster)
		}
		scoped := r.WithContext(ctx)
		u := *r.URL
		u.Path, u.RawPath = rest, ""
		scoped.URL = &u
		scoped.RequestURI = u.RequestURI()
		next.ServeHTTP(w, scoped)
	})
}

// enter returns the logical cluster at a path or with a name, empty for a mounted workspace, whose address is in the context.
func enter(r *http.Request, places Places, path string) (context.Context, logicalcluster.Name, error) {
	ctx := r.Context()
	place, found, err := places.Find(r, path)
	switch {
	case err != nil:
		return ctx, "", err
	case !strings.Contains(path, ":"): // authorization responds for a cluster that does not exist
		return ctx, logicalcluster.Name(path), nil
	case !found:
		return ctx, "", apierrors.NewNotFound(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, path)
	case place.Code != 0:
		return ctx, "", apierrors.NewGenericServerResponse(place.Code, r.Method, schema.GroupResource{}, "",
			"workspace "+path+" is unavailable", 1, false)
	case place.URL != "":
		ctx, err = mount.Enter(r, path, place.Mounted, place.URL)
	}
	return ctx, place.Cluster, err
}

// split returns the cluster and the remaining path of a URL whose path starts with /clusters/.
func split(u *url.URL) (logicalcluster.Cluster, string, error) {
	var none logicalcluster.Cluster
	raw := u.EscapedPath()
	lower := strings.ToLower(raw)
	for _, trick := range []string{"%2f", "%5c", "%00", "%25"} {
		if strings.Contains(lower, trick) {
			return none, "", apierrors.NewBadRequest(fmt.Sprintf("the path contains the escape %s, which no Kubernetes path needs", trick))
		}
	}
	name, rest := u.Path[len(prefix):], "/"
	if slash := strings.IndexByte(name, '/'); slash >= 0 {
		name, rest = name[:slash], name[slash:]
	}
	for segment := range strings.SplitSeq(rest[1:], "/") {
		if segment == "." || segment == ".." {
			return none, "", apierrors.NewBadRequest("the path contains a relative segment")
		}
	}
	if strings.Contains(rest, "//") {
		return none, "", apierrors.NewBadRequest("the path contains an empty segment")
	}
	if strings.HasPrefix(rest, prefix) || rest == strings.TrimSuffix(prefix, "/") {
		return none, "", notFound("a path names one logical cluster only")
	}
	switch {
	case name == "*":
		return logicalcluster.Cluster{Wildcard: true}, rest, nil
	case !logicalcluster.ValidPath(name):
		return none, "", apierrors.NewBadRequest("invalid logical cluster: want lower case letters, digits and '-', in parts joined by ':', " +
			fmt.Sprintf("%d bytes at most", logicalcluster.MaxPathLength))
	}
	return logicalcluster.Cluster{Name: logicalcluster.Name(name)}, rest, nil
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func notFound(message string) error {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

func notImplemented(message string) error {
	return status(http.StatusNotImplemented, metav1.StatusReasonInvalid, message)
}

func methodNotAllowed(message string) error {
	return status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message)
}
