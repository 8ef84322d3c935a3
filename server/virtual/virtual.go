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

// View is one virtual workspace, as one request addresses it.
type View interface {
	// Authorize decides about a request for this view. No logical cluster is in ctx.
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
	// Serve answers a request that Authorize has allowed; its path is that of the Kubernetes API. next serves what the
	// context addresses in kcp, as the user in the context, and does not ask for permission any more.
	Serve(next http.Handler, w http.ResponseWriter, r *http.Request)
}

// Homed is a View that has a home: the logical cluster in which it asks for the rights of its users. Those whom the issuers of
// the type of that workspace vouch for are somebody there, and may be among them.
type Homed interface {
	View
	// Home returns a name that may be of no logical cluster, as it stands in a path; it is empty if there is none.
	Home() logicalcluster.Name
}

// Targeted is a View of one logical cluster, or of all of them.
type Targeted interface {
	View
	// Target returns what the path names, which may not exist; it is empty if the path names none.
	Target() logicalcluster.Cluster
}

// Home returns the home of the view that a request is for, which is not served yet.
func Home(ctx context.Context) (logicalcluster.Name, bool) {
	v, ok := view(ctx, addressedKey{}).(Homed)
	if !ok || v.Home() == "" {
		return "", false
	}
	return v.Home(), true
}

// AtHome makes tokens that are good in one logical cluster good for the views whose home that is.
func AtHome(tokens authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if home, ok := Home(ctx); ok {
			ctx = logicalcluster.WithName(ctx, home)
		}
		return tokens.AuthenticateToken(ctx, token)
	})
}

// Views finds a view by the part of the path behind its name: what names the view, and what is below it.
type Views map[string]func(path string) (view View, rest string, err error)

// The view that a request is for, until it serves it, and from then on.
type (
	addressedKey struct{}
	servingKey   struct{}
	appliedKey   struct{}
)

func view(ctx context.Context, key any) View {
	v, _ := ctx.Value(key).(View)
	return v
}

// WithView takes the view out of the path of a request, and serves it by inner, which begins with authentication. next
// serves all other requests.
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

// WithKnown makes requests for views wait until this server knows their logical clusters, if another one has created them a moment ago.
// find looks a cluster up, and returns an error for the client if that is not possible. s encodes the errors.
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
				continue // it is empty, or of no cluster
			}
			if err := find(r, cluster); err != nil {
				responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Authorizer asks the view of a request, and next about all requests without one.
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

// WithApply makes the view that serves a request decide whether it may create what it applies, and not what the authorizer
// of next says: that is asked for once next has found nothing.
func WithApply(ctx context.Context) context.Context {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.Verb != "patch" || info.Subresource != "" {
		return ctx
	}
	return context.WithValue(ctx, appliedKey{}, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// InView tells whether a view serves the request of a context.
func InView(ctx context.Context) bool { return view(ctx, servingKey{}) != nil }

// Serving asks the view that serves the request of a context.
var Serving authorizer.UnconditionalAuthorizer = authorizer.AuthorizerFunc(func(ctx context.Context,
	a authorizer.Attributes) (authorizer.Decision, string, error) {
	if v := view(ctx, servingKey{}); v != nil {
		return v.Authorize(ctx, a)
	}
	return authorizer.DecisionDeny, "no virtual workspace serves this request", nil
})

// Serve answers requests for views by next, and passes on all others. It stands behind authorization.
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

// withReadsOfAll refuses to do anything in all logical clusters at once but to list and to watch.
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

// Fail answers a request with an error.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	gv := schema.GroupVersion{Version: "v1"}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, apiextensionsapiserver.Codecs, gv, w, r)
}

// Target splits <argument>/clusters/<cluster>/<path>, as most virtual workspaces are addressed.
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

// MissingTarget answers paths that do not say which logical cluster they are for.
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
