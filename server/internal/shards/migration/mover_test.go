package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// round is one response with changes, and how long it takes.
type round struct {
	changes []storage.Entry
	takes   time.Duration
}

// busy is an origin without keys at first, whose changes follow a script.
type busy struct {
	Remote
	clock  *testingclock.FakePassiveClock
	rounds []round
	asked  []int64 // the revisions of the requests for changes
	// revision is that of its store.
	revision int64
	// copy has its digest, until the revision that was compared last.
	copy     *Mover
	compared int64
}

var errScript = errors.New("the script has ended")

func (b *busy) Collections(context.Context, Read) (Answer, error) { return Answer{Revision: 10}, nil }

func (b *busy) State(context.Context, Migration) (State, error) {
	return State{Revision: b.revision}, nil
}

func (b *busy) Changes(_ context.Context, in Read) (Answer, error) {
	n := len(b.asked)
	b.asked = append(b.asked, in.Revision)
	if n >= len(b.rounds) {
		return Answer{}, errScript
	}
	b.clock.SetTime(b.clock.Now().Add(b.rounds[n].takes))
	return Answer{Entries: b.rounds[n].changes, Revision: int64(n + 11)}, nil
}

func (b *busy) Digest(ctx context.Context, in Read) (Answer, error) {
	ctx = logicalcluster.WithName(ctx, in.Migration.Cluster)
	now, err := b.copy.Store.Revision(ctx)
	if err != nil {
		return Answer{}, err
	}
	before := b.compared
	b.compared = int64(now)
	if in.Since == 0 {
		digest, err := b.copy.Copies.Digest(ctx, int64(now), in.Collections)
		return Answer{Digest: digest}, err
	}
	digest, err := b.copy.Copies.DigestOfChanges(ctx, before, int64(now))
	return Answer{Digest: digest}, err
}

// changes returns changes of a number of objects.
func changes(number, size int) (entries []storage.Entry) {
	value := bytes.Repeat([]byte("x"), size)
	for i := range number {
		entries = append(entries, storage.Entry{Key: fmt.Sprintf("/core/configmaps/moving/default/object-%d", i), Value: value})
	}
	return entries
}

// arrive returns a mover behind the gate of shard east, and its fence.
func arrive(t *testing.T) (*Mover, *storage.Fence) {
	t.Helper()
	s := newShard(t, "east")
	arriving := example.Fence(storage.FenceArriving, s.name)
	if _, err := s.store.SwapFence(t.Context(), moving, nil, arriving); err != nil {
		t.Fatal(err)
	}
	return &Mover{Migration: example, Store: s.store, Copies: s.copies}, arriving
}

// from makes a mover copy from an origin with a script.
func (v *Mover) from(rounds ...round) *busy {
	origin := &busy{clock: testingclock.NewFakePassiveClock(time.Now()), rounds: rounds, copy: v}
	v.Origin, v.Clock = origin, origin.clock
	return origin
}

func TestChangesAreFollowedUntilFewAreLeft(t *testing.T) {
	few, many := changes(closeEnough, 1), changes(closeEnough+1, 1)
	full := changes(1, 3<<20)
	v, arriving := arrive(t)
	for _, c := range []struct {
		what   string
		rounds []round
		want   int
	}{
		{"nothing changes", []round{{nil, time.Second}}, 1},
		{"few objects change", []round{{few, time.Second}}, 1},
		{"many objects change in a short time", []round{{many, shortRound}}, 1},
		{"few are left at last", []round{{many, time.Second}, {many, shortRound + 1}, {few, time.Second}}, 3},
		{"a round is short at last", []round{{many, time.Second}, {many, time.Second}, {many, shortRound}}, 3},
		{"more may follow after a full response", []round{{full, shortRound}, {nil, time.Second}}, 2},
		{"clients write faster until the limit", []round{{many, followLimit / 2}, {many, followLimit / 2}, {many, time.Second}}, 3},
		{"responses are full until the limit", []round{{full, followLimit}, {full, time.Second}}, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			origin := v.from(c.rounds...)
			if err := v.copy(in(moving), arriving); err != nil || len(origin.asked) != c.want || v.revision != int64(10+c.want) {
				t.Errorf("copied in %d rounds until revision %d: %v", len(origin.asked), v.revision, err)
			}
		})
	}
}

func TestTheRevisionIsRaisedWhileClientsAreServed(t *testing.T) {
	v, arriving := arrive(t)
	origin := v.from(round{nil, time.Second})
	before, err := v.Store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	origin.revision = int64(before) + 100
	if err := v.copy(in(moving), arriving); err != nil {
		t.Fatal(err)
	}
	if after, err := v.Store.Revision(t.Context()); err != nil || int64(after) <= origin.revision {
		t.Errorf("the copy has ended at revision %d, and the origin has %d: %v", after, origin.revision, err)
	}
}

func TestEachRoundFollowsTheOneBefore(t *testing.T) {
	many := changes(closeEnough+1, 1)
	roles := storage.Entry{Key: "/rbac.authorization.k8s.io/roles/moving/default/one", Value: []byte("x")}
	deleted := storage.Entry{Key: many[0].Key, Deleted: true}
	v, arriving := arrive(t)
	origin := v.from(round{many, time.Second}, round{append(slices.Clone(many), roles), time.Second},
		round{[]storage.Entry{deleted}, time.Second})
	copied := 0
	v.Copied = func(entries []storage.Entry) { copied += len(entries) }
	if err := v.copy(in(moving), arriving); err != nil {
		t.Fatal(err)
	}
	if want := []int64{10, 11, 12}; !slices.Equal(origin.asked, want) {
		t.Errorf("changes were requested after %v, want %v", origin.asked, want)
	}
	if want := []string{"/core/configmaps", "/rbac.authorization.k8s.io/roles"}; !slices.Equal(v.collections, want) {
		t.Errorf("the collections are %v, want %v", v.collections, want)
	}
	if want := 2*len(many) + 2; copied != want {
		t.Errorf("%d entries were counted, want %d", copied, want)
	}
	if digest, err := v.Copies.Digest(in(moving), 0, v.collections); digest.Keys != int64(len(many)) || err != nil {
		t.Errorf("the copy has %d keys, want %d: %v", digest.Keys, len(many), err)
	}
}

func TestAChangeThatIsNotCopiedIsFollowedAgain(t *testing.T) {
	foreign := []storage.Entry{{Key: "/core/configmaps/other/default/one", Value: []byte("x")}}
	for what, rounds := range map[string][]round{
		"the origin does not respond": nil, "the change cannot be written": {{foreign, time.Second}},
	} {
		t.Run(what, func(t *testing.T) {
			v, arriving := arrive(t)
			v.from(rounds...)
			v.revision = 10
			v.Copied = func([]storage.Entry) { t.Error("the change was counted") }
			if got, err := v.follow(in(moving), arriving); err == nil || got != nil || v.revision != 10 || len(v.collections) > 0 {
				t.Errorf("copied %v until revision %d: %v", got, v.revision, err)
			}
			if err := v.copy(in(moving), arriving); err == nil {
				t.Error("the copy does not fail")
			}
		})
	}
}
