package authorization

import "context"

type serverKey struct{}

// AsServer returns the context of a request of the server itself. Only authentication may call it, for the token that only the server
// has: a name, and even a group, can be impersonated.
func AsServer(ctx context.Context) context.Context { return context.WithValue(ctx, serverKey{}, true) }

// IsServer reports whether the request of a context is one of the server itself, without impersonation.
func IsServer(ctx context.Context) bool {
	own, _ := ctx.Value(serverKey{}).(bool)
	return own
}
