package frontproxy

import (
	"errors"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// sink takes the tree of one shard to the index.
type sink struct {
	set  *shardSet
	name string
	// incarnation is the store of the shard, and restored reports that it is another one than before: what it lacks was perhaps not deleted.
	incarnation string
	restored    bool
}

var _ tree.Sink = &sink{}

// Begin implements tree.Sink.
func (s *sink) Begin(start tree.Start) error {
	s.restored = s.restored || s.incarnation != "" && s.incarnation != start.Incarnation
	s.incarnation = start.Incarnation
	s.set.index.Begin(s.name)
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	if s.name == peers.Root {
		s.set.listed = map[string]bool{peers.Root: true}
	}
	return nil
}

// End implements tree.Sink.
func (s *sink) End() error {
	restored := s.restored
	if s.restored = false; !restored {
		s.set.index.End(s.name)
	}
	s.set.update(s.name, func(state *shardState) {
		state.complete, state.failed, state.refused, state.current = true, false, nil, s.set.clock.Now()
	})
	s.moved(true)
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	if s.name != peers.Root || s.set.listed == nil {
		return nil
	}
	for name := range s.set.shards {
		if !s.set.listed[name] && !restored {
			s.set.remove(name)
		}
	}
	s.set.listed = nil
	return nil
}

// Edge implements tree.Sink.
func (s *sink) Edge(e tree.Edge) error {
	s.set.index.SetEdge(s.name, e)
	s.moved(e.Deleted || e.Shard != "" && e.Shard != s.name)
	return nil
}

// moved records that what leads from the root shard to others may have changed.
func (s *sink) moved(perhaps bool) {
	if perhaps && s.name == peers.Root {
		s.set.edges.Store(true)
	}
}

// Cluster implements tree.Sink.
func (s *sink) Cluster(c tree.Cluster) error {
	s.set.index.SetCluster(s.name, c)
	return nil
}

// Shard implements tree.Sink. Only the root shard says which shards there are.
func (s *sink) Shard(record tree.Shard) error {
	switch {
	case s.name != peers.Root:
	case record.Deleted:
		s.set.mu.Lock()
		defer s.set.mu.Unlock()
		s.set.remove(record.Name)
	default:
		s.set.set(record)
	}
	return nil
}

// Bookmark implements tree.Sink.
func (s *sink) Bookmark(uint64) {
	s.set.update(s.name, func(state *shardState) { state.failed, state.refused, state.current = false, nil, s.set.clock.Now() })
}

// Lost implements tree.Sink.
func (s *sink) Lost(err error) {
	refusal := apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
	s.set.update(s.name, func(state *shardState) {
		switch {
		case refusal && state.refused == nil:
			klog.InfoS("A shard refuses the certificate of this front proxy: "+correctCertificate,
				decisionlog.Shard, s.name, decisionlog.Reason, err)
		case !state.failed && !refusal && !errors.Is(err, io.EOF):
			klog.InfoS("The tree of a shard is interrupted", decisionlog.Shard, s.name, decisionlog.Reason, err)
		}
		state.failed, state.refused = true, nil
		if refusal {
			state.refused = err
		}
	})
}
