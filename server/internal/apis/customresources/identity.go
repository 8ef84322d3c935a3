package customresources

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// This file parses <resource>:<identity> in paths.

type identityKey struct{}

// WithIdentity restricts a request to the objects that are stored under an identity.
func WithIdentity(ctx context.Context, identity string) context.Context {
	return context.WithValue(ctx, identityKey{}, identity)
}

func identityFrom(ctx context.Context) (string, bool) {
	identity, ok := ctx.Value(identityKey{}).(string)
	return identity, ok
}

// RequestInfo resolves requests without the identity, because decisions by resource must not depend on the name under which
// a client requests it. The identity stays in the parts.
type RequestInfo struct{ request.RequestInfoResolver }

// NewRequestInfo implements request.RequestInfoResolver.
func (r RequestInfo) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err == nil {
		info.Resource, _, _ = strings.Cut(info.Resource, ":")
	}
	return info, err
}

// withNamedIdentity restricts a request to the identity in its path; false if the request must not use that identity.
func withNamedIdentity(r *http.Request, info *request.RequestInfo) (*http.Request, bool) {
	if len(info.Parts) == 0 {
		return r, true
	}
	_, identity, named := strings.Cut(info.Parts[0], ":")
	if !named {
		return r, true
	}
	_, narrowed := identityFrom(r.Context())
	_, viewed := viewFrom(r.Context())
	if identity == "" || narrowed || viewed {
		return r, false
	}
	return r.WithContext(WithIdentity(r.Context(), identity)), true
}
