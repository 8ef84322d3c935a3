package authorization

import "context"

type serverKey struct{}

// AsServer returns the context of a request that the server itself makes. Authentication alone may say so, by the token that only the
// server has: a name, and even a group, can be impersonated.
func AsServer(ctx context.Context) context.Context { return context.WithValue(ctx, serverKey{}, true) }

// IsServer tells whether the server itself makes the request of a context, as itself.
func IsServer(ctx context.Context) bool {
	own, _ := ctx.Value(serverKey{}).(bool)
	return own
}
