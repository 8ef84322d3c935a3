package mount

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const impersonation = "Impersonate-"

// target is the value in the context of a request for a mounted workspace, which has no logical cluster.
type target struct {
	path      string
	workspace informers.Key
	url       string
	// authorization is the Authorization header of the client, which authentication removes.
	authorization []string
}

type contextKey struct{}

// Enter returns the context of a request for a workspace with a path that is mounted from url. It refuses impersonation, because no
// workspace has rules that could authorize it.
func Enter(r *http.Request, path string, workspace informers.Key, url string) (context.Context, error) {
	for header := range r.Header {
		if strings.HasPrefix(header, impersonation) {
			return nil, apierrors.NewForbidden(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, path,
				errors.New("mounted workspaces do not support impersonation"))
		}
	}
	return context.WithValue(r.Context(), contextKey{}, target{path, workspace, url, r.Header.Values("Authorization")}), nil
}

// PathFrom returns the path of the mounted workspace of a request, false if the request is not for a mounted workspace.
func PathFrom(ctx context.Context) (string, bool) {
	t, ok := ctx.Value(contextKey{}).(target)
	return t.path, ok
}

// ClusterFrom returns the logical cluster that contains the mounted workspace of a request, false if the request is not for a mounted
// workspace.
func ClusterFrom(ctx context.Context) (logicalcluster.Name, bool) {
	t, ok := ctx.Value(contextKey{}).(target)
	return t.workspace.Cluster, ok
}

// Authorizer allows all requests of authenticated users for mounted workspaces, which the mounted server authorizes, and delegates all
// other requests to next. Anonymous users cannot make this server send requests.
func Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		path, mounted := PathFrom(ctx)
		switch {
		case !mounted:
			return next.Authorize(ctx, a)
		case a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous:
			return authorizer.DecisionDeny, "the workspace " + path + " is mounted and requires credentials", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
}
