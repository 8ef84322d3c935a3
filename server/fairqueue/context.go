package fairqueue

import "context"

type contextKey struct{}

// Key of the *Ticket in the context of a request.
var Key any = contextKey{}

// From returns the ticket of a request, nil if it is not in a queue.
func From(ctx context.Context) *Ticket {
	t, _ := ctx.Value(Key).(*Ticket)
	return t
}
