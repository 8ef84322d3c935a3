package migration

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
)

var east = peers.Identity{Kind: peers.Shard, Name: "east"}

// board is root with the migration of the example.
type board struct {
	*Reports
	objects *objecttest.Objects
}

func newBoard(t *testing.T, obj *migrationv1alpha1.LogicalClusterMigration) *board {
	t.Helper()
	objects := objecttest.New(t, obj)
	return &board{&Reports{objects.Stored(objects.Set.LogicalClusterMigrations.Informer)}, objects}
}

// stored returns the object, and false if it does not exist.
func (b *board) stored(t *testing.T) (*migrationv1alpha1.LogicalClusterMigration, bool) {
	t.Helper()
	live := &migrationv1alpha1.LogicalClusterMigration{}
	err := b.Migrations.Get(in("root"), example.Name, live)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return live, err == nil
}

// status returns a status with the plan of the example.
func status(phase migrationv1alpha1.LogicalClusterMigrationPhase) *migrationv1alpha1.LogicalClusterMigrationStatus {
	return &migrationv1alpha1.LogicalClusterMigrationStatus{Phase: phase, OriginShard: example.Origin, Epoch: int64(example.Epoch)}
}

func reportOf(phase migrationv1alpha1.LogicalClusterMigrationPhase) Report {
	return Report{Name: example.Name, UID: example.UID, Status: status(phase)}
}

func TestWhichShardReportsWhichMigration(t *testing.T) {
	shard := func(name string) peers.Identity { return peers.Identity{Kind: peers.Shard, Name: name} }
	for _, c := range []struct {
		what   string
		caller peers.Identity
		change func(*Report)
		want   func(error) bool
	}{
		{"the destination", east, func(*Report) {}, isAccepted},
		{"root, if there is no such shard", shard(peers.Root), func(*Report) {}, isAccepted},
		{"the origin", shard("west"), func(*Report) {}, apierrors.IsForbidden},
		{"the destination of a migration that was created again", east, func(r *Report) { r.UID = "former" }, apierrors.IsForbidden},
		{"root of a migration that was created again", shard(peers.Root), func(r *Report) { r.UID = "former" }, apierrors.IsForbidden},
		{"the destination of a migration that does not exist", east, func(r *Report) { r.Name = "absent" }, apierrors.IsNotFound},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, reads := range []bool{true, false} {
				b, report := newBoard(t, move()), reportOf(migrationv1alpha1.PhaseMigrating)
				c.change(&report)
				if reads {
					report.Status = nil
				}
				got, err := b.Show(t.Context(), c.caller, report)
				if !c.want(err) || err == nil && got.UID != example.UID {
					t.Errorf("reads %t: got %v, %v", reads, got, err)
				}
				want := migrationv1alpha1.PhasePreparing
				if err == nil && !reads {
					want = migrationv1alpha1.PhaseMigrating
				}
				if live, _ := b.stored(t); live.Status.Phase != want || err == nil && got.Status.Phase != want {
					t.Errorf("reads %t: the status is %+v, want phase %s", reads, live.Status, want)
				}
			}
		})
	}
}

func TestFinalPhasesAndTheFirstPlanStay(t *testing.T) {
	const migrating, completed, failed = migrationv1alpha1.PhaseMigrating, migrationv1alpha1.PhaseCompleted, migrationv1alpha1.PhaseFailed
	planned := func(phase migrationv1alpha1.LogicalClusterMigrationPhase) func(*migrationv1alpha1.LogicalClusterMigration) {
		return func(obj *migrationv1alpha1.LogicalClusterMigration) { obj.Status = *status(phase) }
	}
	for _, c := range []struct {
		what   string
		before func(*migrationv1alpha1.LogicalClusterMigration)
		change func(*migrationv1alpha1.LogicalClusterMigrationStatus)
		phase  migrationv1alpha1.LogicalClusterMigrationPhase
		err    func(error) bool
		want   migrationv1alpha1.LogicalClusterMigrationPhase
	}{
		{"the first plan", isIn(migrationv1alpha1.PhasePreparing), nil, migrating, isAccepted, migrating},
		{"the same plan", planned(migrating), nil, migrationv1alpha1.PhaseOriginCleanup, isAccepted, migrationv1alpha1.PhaseOriginCleanup},
		{"another origin", planned(migrating), func(s *migrationv1alpha1.LogicalClusterMigrationStatus) { s.OriginShard = "north" }, completed,
			apierrors.IsConflict, migrating},
		{"another epoch", planned(migrating), func(s *migrationv1alpha1.LogicalClusterMigrationStatus) { s.Epoch++ }, completed,
			apierrors.IsConflict, migrating},
		{"no plan any more", planned(migrating), func(s *migrationv1alpha1.LogicalClusterMigrationStatus) { s.OriginShard, s.Epoch = "", 0 },
			failed, apierrors.IsConflict, migrating},
		{"a step after the end", planned(completed), nil, migrating, isAccepted, completed},
		{"a failure after the end", planned(completed), nil, failed, isAccepted, completed},
		{"a step after the failure", planned(failed), nil, migrating, isAccepted, failed},
	} {
		t.Run(c.what, func(t *testing.T) {
			b, report := newBoard(t, move(c.before)), reportOf(c.phase)
			if c.change != nil {
				c.change(report.Status)
			}
			got, err := b.Show(t.Context(), east, report)
			live, _ := b.stored(t)
			if !c.err(err) || live.Status.Phase != c.want || err == nil && got.Status.Phase != c.want {
				t.Errorf("got %+v, %v; stored is %+v, want %s", got, err, live.Status, c.want)
			}
		})
	}
}

// between changes something after an object was read, and before it is updated.
type between struct {
	storage.Objects
	change func()
}

func (b between) Update(ctx context.Context, name string, into runtime.Object, change func(runtime.Object) error) error {
	b.change()
	return b.Objects.Update(ctx, name, into, change)
}

func TestAReportChecksTheObjectThatItChanges(t *testing.T) {
	for _, c := range []struct {
		what  string
		since *migrationv1alpha1.LogicalClusterMigration
		err   func(error) bool
	}{
		{"it has ended since", move(isIn(migrationv1alpha1.PhaseCompleted)), isAccepted},
		{"it was created again since", move(func(obj *migrationv1alpha1.LogicalClusterMigration) { obj.UID = "other" }), apierrors.IsConflict},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBoard(t, move())
			b.Migrations = between{b.Migrations, func() { b.objects.Store(c.since) }}
			if _, err := b.Show(t.Context(), east, reportOf(migrationv1alpha1.PhaseMigrating)); !c.err(err) {
				t.Error(err)
			}
			if live, _ := b.stored(t); live.UID != c.since.UID || live.Status.Phase != c.since.Status.Phase || len(live.Finalizers) > 0 {
				t.Errorf("stored is %+v", live)
			}
		})
	}
}

func TestAMigrationIsKeptWhileItRuns(t *testing.T) {
	const migrating, failed = migrationv1alpha1.PhaseMigrating, migrationv1alpha1.PhaseFailed
	runs := func(obj *migrationv1alpha1.LogicalClusterMigration) {
		obj.Finalizers = []string{"other", migrationv1alpha1.RunningFinalizer}
	}
	deletedFirst := func(obj *migrationv1alpha1.LogicalClusterMigration) {
		isDeleted(obj)
		obj.Finalizers = []string{"other"}
	}
	ended := func(obj *migrationv1alpha1.LogicalClusterMigration) {
		isDeleted(obj)
		isIn(failed)(obj)
	}
	begins := func(*migrationv1alpha1.LogicalClusterMigration) {}
	reads := Report{Name: example.Name, UID: example.UID}
	for _, c := range []struct {
		what   string
		before func(*migrationv1alpha1.LogicalClusterMigration)
		report Report
		exists bool
		want   []string
	}{
		{"it begins", begins, reportOf(migrating), true, []string{migrationv1alpha1.RunningFinalizer}},
		{"it goes on", runs, reportOf(migrating), true, []string{"other", migrationv1alpha1.RunningFinalizer}},
		{"it ends", runs, reportOf(failed), true, []string{"other"}},
		{"it is deleted before it begins", deletedFirst, reportOf(migrating), true, []string{"other"}},
		{"it is deleted and goes on", isDeleted, reportOf(migrating), true, []string{migrationv1alpha1.RunningFinalizer}},
		{"it is deleted and is read", isDeleted, reads, true, []string{migrationv1alpha1.RunningFinalizer}},
		{"it is deleted and ends", isDeleted, reportOf(failed), false, nil},
		{"it has ended and is deleted", ended, reads, false, nil},
		{"it has ended and exists", isIn(failed), reads, true, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBoard(t, move(c.before))
			if _, err := b.Show(t.Context(), east, c.report); err != nil {
				t.Fatal(err)
			}
			if live, exists := b.stored(t); exists != c.exists || !slices.Equal(live.Finalizers, c.want) {
				t.Errorf("exists %t with finalizers %v", exists, live.Finalizers)
			}
		})
	}
}
