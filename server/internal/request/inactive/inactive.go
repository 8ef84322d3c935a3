// Package inactive takes logical clusters out of service without deleting anything: while a LogicalCluster has the annotation
// core.kcp.io/inactive, requests in its cluster are refused, and open watches in it end.
package inactive

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// exempt are the paths, with everything below them, that are also served in inactive clusters: users need them to read and activate the
// LogicalCluster.
var exempt = []string{"/openapi", "/apis/core.kcp.io/v1alpha1/logicalclusters"}

// Lister reads LogicalClusters of all clusters.
type Lister = informers.Lister[*corev1alpha1.LogicalCluster]

// WithRefusal refuses requests in inactive clusters, with errors that s encodes. It needs only the cluster in the context. own recognises
// requests of the server itself: its controllers continue.
func WithRefusal(next http.Handler, clusters Lister, own func(*http.Request) bool, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		if !ok || cluster.Wildcard || isExempt(r.URL.Path) || !isInactive(clusters, cluster.Name) || own(r) {
			next.ServeHTTP(w, r)
			return
		}
		refusal := apierrors.NewForbidden(corev1alpha1.Resource("logicalclusters"), string(cluster.Name),
			errors.New("logical cluster is marked inactive"))
		responsewriters.ErrorNegotiated(refusal, s, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

// isInactive reports whether a cluster is out of service. A cluster that does not exist is not.
func isInactive(clusters Lister, name logicalcluster.Name) bool {
	lc, err := clusters.Get(name, "", corev1alpha1.LogicalClusterName)
	return err == nil && marked(lc)
}

func marked(lc *corev1alpha1.LogicalCluster) bool {
	return lc.Annotations[corev1alpha1.InactiveAnnotation] == "true"
}

func isExempt(path string) bool {
	for _, prefix := range exempt {
		if rest, ok := strings.CutPrefix(path, prefix); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
