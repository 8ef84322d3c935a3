package migration

import (
	"context"

	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// Calls from the destination of a migration to its origin.
const (
	callState       = "migrations.state"
	callStep        = "migrations.step"
	callCollections = "migrations.collections"
	callPage        = "migrations.page"
	callChanges     = "migrations.changes"
	callDigest      = "migrations.digest"
)

// Serve adds the calls to the origin of migrations.
func (o *Origin) Serve(s *peers.Server) {
	shards := []peers.Kind{peers.Shard}
	peers.Handle(s, callState, shards, o.State)
	peers.Handle(s, callStep, shards, o.Do)
	peers.Handle(s, callCollections, shards, o.Collections)
	peers.Handle(s, callPage, shards, o.Page)
	peers.Handle(s, callChanges, shards, o.Changes)
	peers.Handle(s, callDigest, shards, o.Digest)
}

// Peer is the origin of a migration, called with a client.
type Peer struct {
	Clients *peers.Clients
	Shard   string
}

// State implements Remote.
func (p Peer) State(ctx context.Context, m Migration) (State, error) {
	return peers.Call[Migration, State](ctx, p.Clients, p.Shard, callState, m)
}

// Do implements Remote.
func (p Peer) Do(ctx context.Context, m Migration, step Step) (State, error) {
	return peers.Call[Order, State](ctx, p.Clients, p.Shard, callStep, Order{Migration: m, Step: step})
}

// Collections implements Remote.
func (p Peer) Collections(ctx context.Context, in Read) (Answer, error) {
	return peers.Call[Read, Answer](ctx, p.Clients, p.Shard, callCollections, in)
}

// Page implements Remote.
func (p Peer) Page(ctx context.Context, in Read) (Answer, error) {
	return peers.Call[Read, Answer](ctx, p.Clients, p.Shard, callPage, in)
}

// Changes implements Remote.
func (p Peer) Changes(ctx context.Context, in Read) (Answer, error) {
	return peers.Call[Read, Answer](ctx, p.Clients, p.Shard, callChanges, in)
}

// Digest implements Remote.
func (p Peer) Digest(ctx context.Context, in Read) (Answer, error) {
	return peers.Call[Read, Answer](ctx, p.Clients, p.Shard, callDigest, in)
}
