package fairqueue

import "context"

type contextKey struct{}

// Key of the *Ticket in the context of a request.
var Key any = contextKey{}

// Account returns who pays for a request, empty if it is not in a queue.
func (t *Ticket) Account() string {
	if t == nil {
		return ""
	}
	return t.leaf.chain[0].at.name // which does not change
}

// From returns the ticket of a request, nil if it is not in a queue.
func From(ctx context.Context) *Ticket {
	t, _ := ctx.Value(Key).(*Ticket)
	return t
}
