package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/frontproxy/mapping"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// shardSet is the set of shards, which the root shard says, and what the tree streams have delivered.
//
// Invariants:
//   - The URL of a shard is what the root shard said last. Before that, it is what the stored state says, then the flags.
//   - The shard "root" is never removed.
//   - Every shard has one goroutine that follows its tree, which ends with the shard and with the proxy.
type shardSet struct {
	index *index.Table
	file  *stateStore
	clock clock.PassiveClock
	// follow delivers the tree of a shard to a sink until the context ends.
	follow func(ctx context.Context, shard string, sink tree.Sink)

	mu      sync.Mutex
	ctx     context.Context // of run; nil before
	running sync.WaitGroup
	shards  map[string]*shardState
	// ended is closed when the last goroutine of a shard has ended.
	ended map[string]chan struct{}
	// listed are the shards in a snapshot of the root shard, nil outside of one.
	listed map[string]bool

	// changed has an element when a shard has changed, and edges is true when what leads from the root shard to others may have.
	changed chan struct{}
	edges   atomic.Bool
}

// shardState is what is known about a shard.
type shardState struct {
	url  *url.URL
	stop context.CancelFunc
	// complete reports that the index has a snapshot, and failed that the shard did not respond to the last attempt.
	complete, failed bool
	// refused is why the shard does not accept the certificate of this front proxy; nil if it does.
	refused error
	// current is when the index had everything last.
	current time.Time
}

// newShards returns the shards of the flags, and what was stored in a directory.
func newShards(x *index.Table, directory string, seeds map[string]string, c clock.PassiveClock) (*shardSet, error) {
	s := &shardSet{index: x, file: newStateStore(directory), clock: c, shards: map[string]*shardState{}, ended: map[string]chan struct{}{},
		changed: make(chan struct{}, 1)}
	stored, known := s.file.read(), maps.Clone(seeds)
	x.Restore(peers.Root, stored.Root)
	maps.Copy(known, stored.Shards)
	if seed, ok := seeds[peers.Root]; ok {
		known[peers.Root] = seed // it cannot be reached otherwise after its URL has changed
	}
	for name, text := range known {
		u, err := mapping.ParseBackend(text)
		if err != nil || !peers.ValidName(name) {
			return nil, fmt.Errorf("shard %q: URL %q: %w", name, text, err)
		}
		s.shards[name] = &shardState{url: u}
	}
	return s, nil
}

// URL returns the URL of a shard.
func (s *shardSet) URL(name string) (*url.URL, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.shards[name]
	if !ok {
		return nil, false
	}
	return state.url, true
}

// Names returns the names of all shards.
func (s *shardSet) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.shards))
}

// count returns the number of shards.
func (s *shardSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shards)
}

// At returns the shard with a URL.
func (s *shardSet) At(u *url.URL) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, state := range s.shards {
		if *state.url == *u {
			return name, true
		}
	}
	return "", false
}

// run follows the trees of all shards until ctx ends.
func (s *shardSet) run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	for name, state := range s.shards {
		s.start(name, state)
	}
	s.mu.Unlock()
	s.running.Go(func() { s.keep(ctx) })
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil // no other one starts
	s.mu.Unlock()
	s.running.Wait()
}

// start follows a shard. The caller holds the lock.
func (s *shardSet) start(name string, state *shardState) {
	if s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	state.stop = stop
	before, ended := s.ended[name], make(chan struct{})
	s.ended[name] = ended
	s.running.Go(func() {
		defer close(ended)
		if before != nil {
			<-before // a shard of the same name that was removed
		}
		s.follow(ctx, name, &sink{set: s, name: name})
		if s.removed(name, state) {
			s.index.Forget(name)
		}
	})
}

func (s *shardSet) removed(name string, state *shardState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[name] != state && s.ctx != nil
}

// set adds a shard, or changes its URL.
func (s *shardSet) set(record tree.Shard) {
	u, err := mapping.ParseBackend(record.BaseURL)
	if err != nil || !peers.ValidName(record.Name) {
		klog.ErrorS(err, "The root shard has a shard with an invalid URL", decisionlog.Shard, record.Name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed != nil {
		s.listed[record.Name] = true
	}
	if state, ok := s.shards[record.Name]; ok {
		if changed := *state.url != *u; changed {
			state.url = u
			s.save()
		}
		return
	}
	state := &shardState{url: u}
	s.shards[record.Name] = state
	s.save()
	s.start(record.Name, state)
}

// remove removes a shard, which the root shard does not have. The caller holds the lock.
func (s *shardSet) remove(name string) {
	state, ok := s.shards[name]
	if !ok || name == peers.Root {
		return
	}
	delete(s.shards, name)
	s.save()
	if state.stop != nil {
		state.stop()
	}
}

// keep stores the state when it has changed, until ctx ends: shards at once, and the way to them after a while.
func (s *shardSet) keep(ctx context.Context) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.store()
			return
		case <-s.changed:
			s.store()
		case <-ticker.C:
			if s.edges.Load() {
				s.store()
			}
		}
	}
}

// store stores the state.
func (s *shardSet) store() {
	if s.file.file == "" {
		return
	}
	s.edges.Store(false)
	s.file.save(state{Shards: s.urls(), Root: s.index.Away(peers.Root)})
}

func (s *shardSet) urls() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	urls := map[string]string{}
	for name, state := range s.shards {
		urls[name] = state.url.String()
	}
	return urls
}

// save lets keep store the shards.
func (s *shardSet) save() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// correctCertificate says what to do if shards refuse the certificate of the front proxy.
const correctCertificate = "add its authority to --peer-client-ca-file and --requestheader-client-ca-file of the shards, or correct " +
	"--shards-kubeconfig"

// Ready returns nil when the index has the trees of all shards that respond, and of one at least.
func (s *shardSet) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting, refusing []string
	var refused error
	complete := false
	for name, state := range s.shards {
		complete = complete || state.complete
		if state.refused != nil {
			refusing, refused = append(refusing, name), state.refused
		}
		if !state.complete && !state.failed {
			waiting = append(waiting, name)
		}
	}
	slices.Sort(waiting)
	slices.Sort(refusing)
	switch {
	case len(waiting) > 0:
		return fmt.Errorf("the index lacks the shards %v", waiting)
	case !complete && len(refusing) > 0:
		return fmt.Errorf("the shards %v refuse the certificate of this front proxy: %w: %s", refusing, refused, correctCertificate)
	case !complete:
		return errors.New("no shard responds")
	}
	return nil
}

// lags returns how old the newest state of each shard in the index is. A shard without a snapshot is left out.
func (s *shardSet) lags() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	lags := map[string]time.Duration{}
	for name, state := range s.shards {
		if !state.current.IsZero() {
			lags[name] = s.clock.Since(state.current)
		}
	}
	return lags
}

func (s *shardSet) update(name string, f func(*shardState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, ok := s.shards[name]; ok {
		f(state)
	}
}
