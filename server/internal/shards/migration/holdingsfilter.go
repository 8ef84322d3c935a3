package migration

import (
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// WithHoldings serves what the shards of the installation hold as the subresource logicalclusters of the Shards in root, and passes other
// requests to next. It must be called after authorization, on the root shard. s encodes errors.
func (h *Holdings) WithHoldings(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !isHoldings(info) {
			next.ServeHTTP(w, r)
			return
		}
		cluster, ok := logicalcluster.From(r.Context())
		if !ok || cluster.Wildcard || cluster.Name != logicalcluster.Root {
			next.ServeHTTP(w, r)
			return
		}
		if err := h.write(w, r, info); err != nil {
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
		}
	})
}

func isHoldings(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == corev1alpha1.SchemeGroupVersion.Group &&
		info.APIVersion == corev1alpha1.SchemeGroupVersion.Version && info.Resource == "shards" && info.Subresource == "logicalclusters"
}

func (h *Holdings) write(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if info.Verb != "get" {
		return apierrors.NewMethodNotSupported(corev1alpha1.Resource("shards/logicalclusters"), info.Verb)
	}
	if _, err := h.Set.Shards.Get(logicalcluster.Root, "", info.Name); err != nil {
		return err
	}
	query, in := r.URL.Query(), page{Limit: maxHoldings}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return apierrors.NewBadRequest("limit must be a positive number, got " + strconv.Quote(text))
		}
		in.Limit = limit
	}
	in.After = query.Get("continue")
	out, err := h.Of(r.Context(), info.Name, in)
	if peers.IsUnreachable(err) {
		unavailable := apierrors.NewServiceUnavailable(err.Error() + ": retry the request")
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return unavailable
	}
	if err != nil {
		return err
	}
	responsewriters.WriteRawJSON(http.StatusOK, out, w)
	return nil
}
