package virtual

import (
	"context"
	"net/http"
	"strings"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Prefix of the paths of virtual workspaces.
const Prefix = "/services/"

// CauseDeletionRefused is the cause of a Status with the code 403 of a virtual workspace that is virtual storage: the owner of the object
// refuses its deletion, and consumers get the message. With other causes, 403 concerns the client certificate of kcp.
const CauseDeletionRefused metav1.CauseType = "DeletionRefused"

// View is one virtual workspace for one request.
type View interface {
	// Authorize decides about a request for this view. ctx has no logical cluster.
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
	// Serve serves a request that Authorize has allowed; its path is that of the Kubernetes API. next serves the
	// request in kcp for the cluster and as the user in the context, without further authorization.
	Serve(next http.Handler, w http.ResponseWriter, r *http.Request)
}

// Homed is a View with a home: the logical cluster in which it authorizes its users. Users of the issuers of the type of that
// workspace are valid there, and can use the view.
type Homed interface {
	View
	// Home returns a name from the path, which may not exist; it is empty if the path has none.
	Home() logicalcluster.Name
}

// Targeted is a View of one logical cluster, or of all of them.
type Targeted interface {
	View
	// Target returns the cluster in the path, which may not exist; it is empty if the path has none.
	Target() logicalcluster.Cluster
}

// Home returns the home of the view of a request that the view does not serve yet.
func Home(ctx context.Context) (logicalcluster.Name, bool) {
	v, ok := view(ctx, addressedKey{}).(Homed)
	if !ok || v.Home() == "" {
		return "", false
	}
	return v.Home(), true
}

// AtHome makes tokens that are valid in one logical cluster valid for the views with that home.
func AtHome(tokens authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if home, ok := Home(ctx); ok {
			ctx = logicalcluster.WithName(ctx, home)
		}
		return tokens.AuthenticateToken(ctx, token)
	})
}

// Views finds a view by the part of the path after its name: the arguments of the view, and the path below it.
type Views map[string]func(path string) (view View, rest string, err error)

// The keys of the view of a request: before the view serves the request, and after that.
type (
	addressedKey struct{}
	servingKey   struct{}
	appliedKey   struct{}
)

func view(ctx context.Context, key any) View {
	v, _ := ctx.Value(key).(View)
	return v
}

// Has reports whether a path is that of a view.
func (views Views) Has(path string) bool {
	rest, ok := strings.CutPrefix(path, Prefix)
	name, _, _ := strings.Cut(rest, "/")
	return ok && views[name] != nil
}

// WithView removes the view from the path of a request, and passes the request to inner, which begins with
// authentication. next serves all other requests.
func (views Views) WithView(next, inner http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, Prefix)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		refuse := func(err error) {
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
		}
		if strings.ContainsAny(r.URL.RawPath, "%") || strings.Contains(rest, "//") || strings.Contains(rest, "/../") ||
			strings.Contains(rest, "/./") {
			refuse(apierrors.NewBadRequest("the path contains an escape sequence, or an empty or relative segment"))
			return
		}
		for header := range r.Header {
			if strings.HasPrefix(header, "Impersonate-") {
				refuse(forbidden("virtual workspaces do not support impersonation"))
				return
			}
		}
		name, path, _ := strings.Cut(rest, "/")
		find, ok := views[name]
		if !ok {
			refuse(notFound("unknown virtual workspace " + name))
			return
		}
		view, below, err := find(path)
		if err != nil {
			refuse(err)
			return
		}
		viewed := r.WithContext(context.WithValue(r.Context(), addressedKey{}, view))
		u := *r.URL
		u.Path, u.RawPath = "/"+strings.TrimPrefix(below, "/"), ""
		viewed.URL, viewed.RequestURI = &u, u.RequestURI()
		inner.ServeHTTP(w, viewed)
	})
}

// WithKnown makes requests for views wait until this server knows their logical clusters, which another server may have created a
// moment ago. find looks up a cluster, and returns an error for the client if that fails. s encodes the errors.
func WithKnown(next http.Handler, find func(r *http.Request, cluster logicalcluster.Name) error,
	s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var named []logicalcluster.Name
		v := view(r.Context(), addressedKey{})
		if homed, ok := v.(Homed); ok {
			named = append(named, homed.Home())
		}
		if targeted, ok := v.(Targeted); ok {
			named = append(named, targeted.Target().Name)
		}
		for _, cluster := range named {
			if _, err := clusterName(string(cluster)); err != nil {
				continue // it is empty, or not the name of a cluster
			}
			if err := find(r, cluster); err != nil {
				responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Authorizer calls the view of a request, and next for all requests without a view.
func Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if v := view(ctx, addressedKey{}); v != nil {
			return v.Authorize(ctx, a)
		}
		applied, ok := ctx.Value(appliedKey{}).(schema.GroupResource)
		if ok && a.GetVerb() == "create" && a.GetSubresource() == "" &&
			applied == (schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}) {
			return Serving.Authorize(ctx, a)
		}
		return next.Authorize(ctx, a)
	})
}

// WithApply makes the view that serves a request decide whether the client may create the object that it applies, instead
// of the authorizer of next. This decision is needed when next does not find the object.
func WithApply(ctx context.Context) context.Context {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.Verb != "patch" || info.Subresource != "" {
		return ctx
	}
	return context.WithValue(ctx, appliedKey{}, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// InView reports whether a view serves the request of a context.
func InView(ctx context.Context) bool { return view(ctx, servingKey{}) != nil }

// Serving calls the view that serves the request of a context.
var Serving authorizer.UnconditionalAuthorizer = authorizer.AuthorizerFunc(func(ctx context.Context,
	a authorizer.Attributes) (authorizer.Decision, string, error) {
	if v := view(ctx, servingKey{}); v != nil {
		return v.Authorize(ctx, a)
	}
	return authorizer.DecisionDeny, "no virtual workspace serves this request", nil
})

// Serve serves requests for views with next, and passes on all others. It must run after authorization.
func Serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := view(r.Context(), addressedKey{})
		if v == nil {
			next.ServeHTTP(w, r)
			return
		}
		if strings.TrimSuffix(r.URL.Path, "/") == "/version" { // is that of the server
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), addressedKey{}, nil)))
			return
		}
		v.Serve(withReadsOfAll(next), w, r.WithContext(context.WithValue(context.WithValue(r.Context(), addressedKey{}, nil), servingKey{}, v)))
	})
}

// withReadsOfAll rejects requests across all logical clusters except list and watch.
func withReadsOfAll(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, _ := logicalcluster.From(r.Context())
		info, ok := request.RequestInfoFrom(r.Context())
		if cluster.Wildcard && ok && info.IsResourceRequest && info.Verb != "list" && info.Verb != "watch" {
			Fail(w, r, status(
				http.StatusMethodNotAllowed,
				metav1.StatusReasonMethodNotAllowed,
				"only list and watch are supported across all logical clusters: use clusters/<name> instead of clusters/*",
			))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Fail responds to a request with an error.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	gv := schema.GroupVersion{Version: "v1"}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, apiextensionsapiserver.Codecs, gv, w, r)
}

// Target splits <argument>/clusters/<cluster>/<path>, the form of most virtual workspaces.
func Target(path string) (argument string, cluster logicalcluster.Cluster, rest string, err error) {
	argument, rest, _ = strings.Cut(path, "/")
	if argument == "" {
		return "", cluster, "", MissingTarget
	}
	cluster, rest, err = Cluster(rest)
	return argument, cluster, rest, err
}

// Of splits <cluster>/<argument>/clusters/<cluster>/<path>, for virtual workspaces of an object of a logical cluster.
func Of(path string) (of logicalcluster.Name, argument string, target logicalcluster.Cluster, rest string, err error) {
	cluster, rest, _ := strings.Cut(path, "/")
	if argument, target, rest, err = Target(rest); err == nil {
		of, err = clusterName(cluster)
	}
	return of, argument, target, rest, err
}

// Consumer splits <cluster>/<path>.
func Consumer(path string) (cluster logicalcluster.Name, rest string, err error) {
	name, rest, _ := strings.Cut(path, "/")
	cluster, err = clusterName(name)
	return cluster, rest, err
}

// MissingTarget is the error for paths without a logical cluster.
var MissingTarget = notFound("the path must continue with clusters/<name>/ or clusters/*/")

// Cluster splits clusters/<cluster>/<path>, for virtual workspaces without an argument.
func Cluster(path string) (cluster logicalcluster.Cluster, rest string, err error) {
	below, ok := strings.CutPrefix(path, "clusters/")
	name, rest, _ := strings.Cut(below, "/")
	switch {
	case !ok:
		return cluster, "", MissingTarget
	case name == "*":
		cluster.Wildcard = true
		return cluster, rest, nil
	}
	cluster.Name, err = clusterName(name)
	return cluster, rest, err
}

func clusterName(name string) (logicalcluster.Name, error) {
	if !logicalcluster.ValidPath(name) || strings.Contains(name, ":") {
		return "", apierrors.NewBadRequest("invalid logical cluster: virtual workspaces require its name, not a path")
	}
	return logicalcluster.Name(name), nil
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func notFound(message string) error {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

func forbidden(message string) error {
	return status(http.StatusForbidden, metav1.StatusReasonForbidden, message)
}
