package authorization

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// DeepReviewHeader makes a SubjectAccessReview return what RBAC in the logical cluster allows, whether or not the
// subject may enter the cluster.
const DeepReviewHeader = "X-Kcp-Internal-Deep-SubjectAccessReview"

type deepReviewKey struct{}

// IsDeepReview reports whether the attributes belong to a deep SubjectAccessReview.
func IsDeepReview(ctx context.Context) bool {
	deep, _ := ctx.Value(deepReviewKey{}).(bool)
	return deep
}

// Deep returns a context in which the chain decides only by RBAC, whether or not the user may enter the cluster.
func Deep(ctx context.Context) context.Context { return context.WithValue(ctx, deepReviewKey{}, true) }

// WithDeepReview honors DeepReviewHeader for members of system:masters that create SubjectAccessReviews, and ignores it
// for all other users. It must run after authorization, so that the request itself is authorized as usual.
func WithDeepReview(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, ok := request.RequestInfoFrom(ctx)
		u, known := request.UserFrom(ctx)
		if ok && known && r.Header.Get(DeepReviewHeader) == "true" && isMaster(ctx, u) &&
			info.IsResourceRequest && info.Verb == "create" && info.APIGroup == "authorization.k8s.io" && info.Resource == "subjectaccessreviews" {
			r = r.WithContext(Deep(ctx))
		}
		next.ServeHTTP(w, r)
	})
}
