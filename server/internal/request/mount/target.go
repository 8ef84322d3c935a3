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

// target is what a request for a mounted workspace carries in its context instead of a logical cluster.
type target struct {
	path      string
	workspace informers.Key
	url       string
	// authorization is what the client sent in the header of that name, which authentication removes.
	authorization []string
}

type contextKey struct{}

// Enter returns the context of a request for a workspace, found at path, that is mounted from url. Impersonation is refused:
// it would be judged by the rules of no workspace.
func Enter(r *http.Request, path string, workspace informers.Key, url string) (context.Context, error) {
	for header := range r.Header {
		if strings.HasPrefix(header, impersonation) {
			return nil, apierrors.NewForbidden(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, path,
				errors.New("it is mounted, and mounted workspaces do not serve impersonated users"))
		}
	}
	return context.WithValue(r.Context(), contextKey{}, target{path, workspace, url, r.Header.Values("Authorization")}), nil
}

// PathFrom returns the path of the mounted workspace that a request is for, false if it is for something else.
func PathFrom(ctx context.Context) (string, bool) {
	t, ok := ctx.Value(contextKey{}).(target)
	return t.path, ok
}

// ClusterFrom returns the logical cluster that the mounted workspace is in that a request is for, false if it is for something else.
func ClusterFrom(ctx context.Context) (logicalcluster.Name, bool) {
	t, ok := ctx.Value(contextKey{}).(target)
	return t.workspace.Cluster, ok
}

// Authorizer lets everybody who has authenticated into mounted workspaces, where the server behind them decides, and asks
// next about all other requests. Strangers to this server cannot make it send requests.
func Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		path, mounted := PathFrom(ctx)
		switch {
		case !mounted:
			return next.Authorize(ctx, a)
		case a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous:
			return authorizer.DecisionDeny, "the workspace " + path + " is mounted, and takes credentials", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
}
