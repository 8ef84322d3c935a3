package authorization

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kcplane/kcp/server/internal/tenancy/references"
)

type undecidedKey struct{}

// Undecided returns inner, whose retriable errors become the responses of WithUndecided.
func Undecided(inner authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := inner.Authorize(ctx, a)
		if decision == allow {
			Undecide(ctx, nil)
		} else {
			Undecide(ctx, err)
		}
		return decision, reason, err
	})
}

// Undecide makes an error the response of WithUndecided if it is retriable, and the request is not authenticated or authorized after all.
func Undecide(ctx context.Context, err error) {
	into, ok := ctx.Value(undecidedKey{}).(*error)
	switch {
	case !ok:
	case err == nil, references.IsRetriable(err):
		*into = err
	}
}

// WithUndecided responds with the Status of a retriable error, encoded by s, to requests whose authentication or authorization ends with
// it. Upstream's filters respond with 401 and 500, which clients do not retry. It must be called before these filters.
func WithUndecided(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var undecided error
		r = r.WithContext(context.WithValue(r.Context(), undecidedKey{}, &undecided))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&undecidedWriter{ResponseWriter: w, request: r, undecided: &undecided, serializer: s}), r)
	})
}

// undecidedWriter replaces the response of upstream's filters if authentication or authorization has ended with a retriable error.
type undecidedWriter struct {
	http.ResponseWriter
	request    *http.Request
	undecided  *error
	serializer runtime.NegotiatedSerializer
	replaced   bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (u *undecidedWriter) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u *undecidedWriter) WriteHeader(code int) {
	if *u.undecided == nil || (code != http.StatusInternalServerError && code != http.StatusUnauthorized) {
		u.ResponseWriter.WriteHeader(code)
		return
	}
	u.replaced = true
	u.Header().Del("X-Content-Type-Options")
	responsewriters.ErrorNegotiated(*u.undecided, u.serializer, schema.GroupVersion{Version: "v1"}, u.ResponseWriter, u.request)
}

// Write implements http.ResponseWriter.
func (u *undecidedWriter) Write(content []byte) (int, error) {
	if u.replaced {
		return len(content), nil
	}
	return u.ResponseWriter.Write(content)
}
