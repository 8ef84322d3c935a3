package authorization

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// DeepReviewHeader asks that a SubjectAccessReview tells what RBAC in the logical cluster allows, whether or not the
// subject may enter it.
const DeepReviewHeader = "X-Kcp-Internal-Deep-SubjectAccessReview"

type deepReviewKey struct{}

// IsDeepReview tells whether the attributes that are being authorized are those of a deep SubjectAccessReview.
func IsDeepReview(ctx context.Context) bool {
	deep, _ := ctx.Value(deepReviewKey{}).(bool)
	return deep
}

// Deep returns a context in which the chain answers what RBAC allows a user, whether or not they may enter the cluster.
func Deep(ctx context.Context) context.Context { return context.WithValue(ctx, deepReviewKey{}, true) }

// WithDeepReview honours DeepReviewHeader for members of system:masters that create SubjectAccessReviews, and ignores it
// for everybody else. It stands behind authorization, so that the request itself is judged as usual.
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
