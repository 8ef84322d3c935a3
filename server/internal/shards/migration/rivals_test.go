package migration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// rival is one of several migrations of the same cluster.
type rival struct {
	mover *Mover
	// refused means that the cluster is in another migration.
	refused bool
	end     Step
}

// contest is three shards, the first of which holds the cluster, and rivals that move it to the others.
type contest struct {
	*model
	rivals []*rival
}

func newContest(t *testing.T, destinations ...string) *contest {
	t.Helper()
	c := &contest{model: &model{shards: map[string]*shard{}}}
	for _, name := range []string{"west", "east", "north"} {
		c.shards[name] = newShard(t, name)
	}
	c.parent = &parent{fault: func() bool { return false }, record: placement.Record{Shard: "west", Epoch: 1, Cluster: moving}}
	lc := &corev1alpha1.LogicalCluster{}
	lc.Name = corev1alpha1.LogicalClusterName
	lc.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	if err := c.shards["west"].cluster.Create(in(moving), lc.Name, lc); err != nil {
		t.Fatal(err)
	}
	for object := range objects {
		if err := c.shards["west"].write(moving, fmt.Sprint("object-", object), object); err != nil {
			t.Fatal(err)
		}
	}
	for n, to := range destinations {
		c.add(fmt.Sprint("rival-", n), to)
	}
	return c
}

// add adds a migration from the shard that holds the cluster.
func (c *contest) add(uid, to string) {
	record := c.parent.current()
	from, r := c.shards[record.Shard], &rival{}
	m := Migration{UID: types.UID(uid), Cluster: moving, Origin: from.name, Destination: to, Epoch: record.Epoch + 1}
	origin := &Origin{Shard: from.name, Store: from.store, Copies: from.copies, Records: c.parent,
		Accepts: func(context.Context, Migration) error { return nil }}
	remote := direct{origin: origin, caller: peers.Identity{Kind: peers.Shard, Name: to}, fault: c.parent.fault}
	r.mover = &Mover{Migration: m, Store: c.shards[to].store, Copies: c.shards[to].copies, Origin: remote, Records: c.parent,
		Clock: clock.RealClock{}, Canceled: func() bool { return r.refused }}
	c.rivals = append(c.rivals, r)
}

// step makes the next step of a rival.
func (r *rival) step(t *testing.T) {
	t.Helper()
	step, observed, err := r.mover.Next(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case step == StepRefused:
		r.refused = true
	case step == StepDone || step == StepCanceled:
		r.end = step
	default:
		// Another rival may have changed the record or a fence since. The next step follows what is there.
		if err := r.mover.Do(t.Context(), step, observed); err != nil {
			time.Sleep(time.Millisecond) // a process may not know a fence yet
		}
	}
}

// verify checks that the record is that of a shard which has the cluster with all objects, and that the other shards have nothing.
func (c *contest) verify(t *testing.T, want placement.Record) {
	t.Helper()
	held := c.parent.current()
	if held != want {
		t.Errorf("the record is %+v, want %+v", held, want)
	}
	for name, s := range c.shards {
		fence, _, err := s.store.Fence(t.Context(), moving)
		if err != nil {
			t.Fatal(err)
		}
		if name != held.Shard {
			if keys := s.keys(t, moving); keys != 0 || fence != nil && fence.State != storage.FenceMoved {
				t.Errorf("shard %s has %d keys and the fence %+v", name, keys, fence)
			}
			continue
		}
		for object := range objects {
			if got, err := s.read(moving, fmt.Sprint("object-", object)); err != nil || got != object {
				t.Errorf("the holder %s has %d as object-%d: %v", name, got, object, err)
			}
		}
	}
}

func TestOneOfSeveralMigrationsOfAClusterMovesIt(t *testing.T) {
	for what, destinations := range map[string][]string{
		"to two shards": {"east", "north"}, "to the same shard": {"east", "east"}, "three": {"east", "north", "east"},
	} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", what, seed), func(t *testing.T) {
				c, random := newContest(t, destinations...), rand.New(rand.NewPCG(seed, 1))
				for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
					open := slices.DeleteFunc(slices.Clone(c.rivals), func(r *rival) bool { return r.end != "" })
					if len(open) == 0 {
						break
					}
					open[random.IntN(len(open))].step(t)
				}
				var winners []string
				for _, r := range c.rivals {
					if r.end == StepDone {
						winners = append(winners, r.mover.Migration.Destination)
					}
				}
				if len(slices.Compact(winners)) != 1 { // two to the same shard have the same end
					t.Fatalf("the cluster was moved to %v", winners)
				}
				c.verify(t, placement.Record{Shard: winners[0], Epoch: 2, Cluster: moving})
			})
		}
	}
}

func TestAMigrationIsRefusedWhileAnotherSwitchesTheCluster(t *testing.T) {
	for _, c := range []struct {
		within  Step
		refused bool
	}{
		{StepFinish, true}, {StepCommit, true}, {StepSettle, true}, {StepPublish, true},
		{StepWithdraw, false}, {StepForward, false}, {StepClean, false}, // the destination serves the cluster, which can move on
	} {
		t.Run(string(c.within), func(t *testing.T) {
			contest, want := newContest(t, "east"), placement.Record{Shard: "east", Epoch: 2, Cluster: moving}
			first := contest.rivals[0]
			first.until(t, c.within)
			contest.add("late", "north")
			late := contest.rivals[1]
			late.until(t, "")
			if late.refused != c.refused {
				t.Errorf("the migration is refused: %t", late.refused)
			}
			if !c.refused {
				want = placement.Record{Shard: "north", Epoch: 3, Cluster: moving}
			}
			first.until(t, "")
			contest.verify(t, want)
		})
	}
}

// until makes the steps of a rival until a step is the next one, or until its end.
func (r *rival) until(t *testing.T, want Step) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		step, _, err := r.mover.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if step == want || r.end != "" {
			return
		}
		r.step(t)
	}
	t.Fatalf("the migration does not arrive at %q", want)
}

// deleted are the Records after the Workspace was deleted.
type deleted struct{ Records }

func (deleted) Record(context.Context, logicalcluster.Name) (placement.Record, error) {
	return placement.Record{}, fmt.Errorf("%w: not found", errGone)
}

func TestACopyIsDiscardedIfTheWorkspaceIsDeleted(t *testing.T) {
	for _, step := range []Step{StepGate, StepCopy, StepLeave} {
		t.Run(string(step), func(t *testing.T) {
			c := newContest(t, "east")
			r := c.rivals[0]
			r.until(t, step)
			r.mover.Records = deleted{c.parent}
			r.until(t, "")
			if keys := c.shards["east"].keys(t, moving); r.end != StepCanceled || keys != 0 {
				t.Errorf("the migration ends with %s, and the destination has %d keys", r.end, keys)
			}
			if keys := c.shards["west"].keys(t, moving); keys != objects+1 {
				t.Errorf("the origin, which deletes the cluster itself, has %d keys", keys)
			}
		})
	}
}

func TestOnlyAnAbsentWorkspaceMeansThatItIsDeleted(t *testing.T) {
	unknown := apierrors.NewNotFound(schema.GroupResource{}, "")
	unknown.ErrStatus.Details = nil // of a shard without the call
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {apierrors.NewNotFound(workspaces, "team"), true}, {unknown, false}, {errFault, false},
		{apierrors.NewConflict(workspaces, "team", errFault), false}, {apierrors.NewServiceUnavailable("moving"), false},
		{apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "team"), false},
	} {
		if got := isAbsent(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

func TestTheDestinationIsLaterThanTheOriginBeforeTheCommit(t *testing.T) {
	c := newContest(t, "east")
	r := c.rivals[0]
	r.until(t, StepFinish)
	client := servers["west"].Client()
	defer client.Close()
	revision := func(name string) uint64 {
		found, err := c.shards[name].store.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for east := revision("east"); revision("west") <= east+10; { // other clusters of the origin are written
		if _, err := client.Put(t.Context(), "/others", ""); err != nil {
			t.Fatal(err)
		}
	}
	west := revision("west")
	r.until(t, StepCommit)
	if east := revision("east"); east <= west {
		t.Errorf("the destination has revision %d, the origin had %d", east, west)
	}
}
