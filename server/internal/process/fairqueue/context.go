package fairqueue

import "context"

type contextKey struct{}

// Key of the *Ticket in the context of a request.
var Key any = contextKey{}

// Account returns the account of a request, empty if the request is not in a queue.
func (t *Ticket) Account() string {
	if t == nil {
		return ""
	}
	return t.leaf.chain[0].at.name // immutable
}

// From returns the ticket of a request, nil if the request is not in a queue.
func From(ctx context.Context) *Ticket {
	t, _ := ctx.Value(Key).(*Ticket)
	return t
}
