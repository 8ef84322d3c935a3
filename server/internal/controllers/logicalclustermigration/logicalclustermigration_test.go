package logicalclustermigration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/migration"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	preparing = migrationv1alpha1.PhasePreparing
	migrating = migrationv1alpha1.PhaseMigrating
	cleaning  = migrationv1alpha1.PhaseOriginCleanup
	completed = migrationv1alpha1.PhaseCompleted
	failed    = migrationv1alpha1.PhaseFailed
)

var errDown = errors.New("it is down")

func TestAClusterMovesToThisShard(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.isMoved(t)
	var phases []migrationv1alpha1.LogicalClusterMigrationPhase
	for _, report := range w.reported[1:] {
		phases = append(phases, report.Status.Phase)
	}
	if want := []migrationv1alpha1.LogicalClusterMigrationPhase{preparing, migrating, cleaning, completed}; !slices.Equal(phases, want) {
		t.Errorf("reported the phases %v, want %v", phases, want)
	}
	live, _ := w.stored(t)
	for kind, want := range map[string]string{
		migrationv1alpha1.OriginReady: "True Accepted", migrationv1alpha1.DataCopied: "True Copied",
		migrationv1alpha1.OriginCleaned: "True Cleaned",
	} {
		if got := condition(live.Status, kind); got != want {
			t.Errorf("condition %s is %s, want %s", kind, got, want)
		}
	}
	s := live.Status
	if s.OriginShard != "west" || s.Epoch != 2 || s.EntriesCopied != collections || s.BytesCopied == 0 || len(live.Finalizers) > 0 {
		t.Errorf("got finalizers %v, and status %+v", live.Finalizers, s)
	}
	w.reported = nil
	if w.reconcile(t); len(w.reported) > 0 {
		t.Errorf("reported after the end: %+v", w.reported)
	}
}

func TestAShardDrivesMigrationsToItself(t *testing.T) {
	for _, c := range []struct {
		what, shard, to string
		cluster         string
		want            bool
	}{
		{"the destination", "east", "east", "root", true},
		{"another shard", "west", "east", "root", false},
		{"root of a migration to another shard", "root", "east", "root", false},
		{"root of a migration to itself", "root", "root", "root", true},
		{"root of a migration to no shard", "root", "absent", "root", true},
		{"another shard than root of a migration to no shard", "east", "absent", "root", false},
		{"the destination of an object outside of root", "east", "east", "tenant", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				obj := objecttest.In(c.cluster, move(c.to, isDeleted)) // which needs no other shard
				r := newRoot(t, c.shard, obj, shard("root"), shard("east"), shard("west"))
				controller := r.controller(nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go controller.Run(ctx)
				synctest.Wait()
				if (len(r.reported) > 0) != c.want {
					t.Errorf("reported %+v", r.reported)
				}
				r.reported = nil
				key := informers.Key{Cluster: logicalcluster.Root, Name: key.Name}
				if err := controller.Reconcile(ctx, key); err != nil || len(r.reported) > 0 {
					t.Errorf("reported %+v after the end: %v", r.reported, err)
				}
			})
		})
	}
}

func TestAMigrationToNoShardFails(t *testing.T) {
	r := newRoot(t, "root", move("absent"), shard("root"))
	if err := r.controller(nil).Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	isRefused(t, r, `there is no shard "absent"`)
}

// isRefused checks that the migration has failed because of a refusal.
func isRefused(t *testing.T, r *root, why string) {
	t.Helper()
	live, _ := r.stored(t)
	if live.Status.Phase != failed || condition(live.Status, migrationv1alpha1.Completed) != "False Failed" ||
		condition(live.Status, migrationv1alpha1.OriginReady) != "False Refused" || len(live.Finalizers) > 0 {
		t.Errorf("got finalizers %v, and status %+v", live.Finalizers, live.Status)
	}
	if got := message(live.Status, migrationv1alpha1.Completed); !strings.Contains(got, why) {
		t.Errorf("the message is %q, want %q", got, why)
	}
}

func TestARefusedMigrationFails(t *testing.T) {
	for _, c := range []struct {
		why     string
		prepare func(*world)
	}{
		{`no shard holds logical cluster "absent"`, func(w *world) {
			obj := move("east")
			obj.Spec.LogicalCluster = "absent"
			w.Store(obj)
			w.Show(obj)
		}},
		{"the destination has version v1.3.0", func(w *world) { w.destination.Version = "v1.3.0" }},
		{`logical cluster "moving" is on shard "east" already`, func(w *world) {
			w.destination.Store, w.destination.Copies = w.west.backend, w.west.copies
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.prepare(w)
			w.reconcile(t)
			isRefused(t, w.root, c.why)
			w.reported = nil
			if w.reconcile(t); len(w.reported) > 0 || w.east.fence(t) != "" || w.west.fence(t) != "" || w.record(t) != "west 1" {
				t.Errorf("the record is %s, reported after the end: %+v", w.record(t), w.reported)
			}
		})
	}
}

func TestAClusterInAnotherMigrationStaysThere(t *testing.T) {
	w := newWorld(t)
	other := &storage.Fence{State: storage.FenceLeaving, Epoch: 2, Shard: "north", Migration: "other"}
	w.before = func(call string) error {
		if call != "migrations.state" || w.west.fence(t) != "" {
			return nil
		}
		_, err := w.west.backend.SwapFence(context.Background(), moving, nil, other)
		return err
	}
	w.reconcile(t)
	live, _ := w.stored(t)
	if live.Status.Phase != failed || condition(live.Status, migrationv1alpha1.OriginReady) != "False LogicalClusterAlreadyMigrating" ||
		condition(live.Status, migrationv1alpha1.Completed) != "False Failed" {
		t.Errorf("the status is %+v", live.Status)
	}
	if fence, _, err := w.west.backend.Fence(t.Context(), moving); err != nil || fence == nil || *fence != *other || w.record(t) != "west 1" {
		t.Errorf("the fence is %+v, the record is %s: %v", fence, w.record(t), err)
	}
}

// failAt makes calls of shard west fail.
func (w *world) failAt(call string) {
	w.before = func(name string) error {
		if name == call {
			return errDown
		}
		return nil
	}
}

func TestAFailedStepIsReportedAndTriedAgain(t *testing.T) {
	for _, c := range []struct {
		call, phase, copied string
	}{
		{"migrations.prepare", "Preparing", ""},
		{"placements.record", "Preparing", ""},
		{"migrations.page", "Migrating", "False CopyFailed"},
		{"migrations.step", "Migrating", ""},
		{"migrations.digest", "Migrating", "False CopyFailed"},
		{digestBehindFence, "Migrating", "False CopyFailed"},
		{"placements.replace", "Migrating", "True Copied"},
	} {
		t.Run(c.call, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.failAt(c.call)
			for range 2 {
				w.reconcile(t)
			}
			live, _ := w.stored(t)
			if string(live.Status.Phase) != c.phase || condition(live.Status, migrationv1alpha1.Completed) != "False StepFailed" ||
				condition(live.Status, migrationv1alpha1.DataCopied) != c.copied {
				t.Errorf("the status is %+v", live.Status)
			}
			if got := message(live.Status, migrationv1alpha1.Completed); !strings.Contains(got, errDown.Error()) {
				t.Errorf("the message is %q", got)
			}
			for _, report := range w.reported[1:] {
				if report.Status == nil {
					t.Error("the migration does not go on, but begins again")
				}
			}
			w.before, w.reported = nil, nil
			w.reconcile(t)
			w.isMoved(t)
			for _, report := range w.reported {
				if got := condition(*report.Status, migrationv1alpha1.Completed); got != "" && got != "True Completed" {
					t.Errorf("in phase %s, a step that was executed since is reported as %s", report.Status.Phase, got)
				}
			}
		})
	}
}

func TestWhatFailedIsTriedAgainAfterAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoot(t, "root", move("absent"))
		ends := 0
		r.refuse = func(in migration.Report) error {
			if in.Status == nil {
				return nil
			}
			if ends++; ends < 3 {
				return errDown
			}
			return nil
		}
		controller := r.controller(nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go controller.Run(ctx)
		for want := 1; want <= 3; want++ {
			synctest.Wait()
			if ends != want {
				t.Fatalf("reported %d times, want %d", ends, want)
			}
			time.Sleep(retryInterval - 1*time.Nanosecond)
			synctest.Wait()
			if ends != want {
				t.Fatalf("reported %d times before the interval has passed, want %d", ends, want)
			}
			time.Sleep(1 * time.Nanosecond)
		}
		isRefused(t, r, "there is no shard")
	})
}

func TestAMigrationThatIsDeletedBeforeItBeginsIsCanceled(t *testing.T) {
	w := newWorld(t)
	w.Store(move("east", isDeleted))
	w.Show(move("east", isDeleted))
	w.before = func(call string) error {
		t.Errorf("shard west is called with %s", call)
		return nil
	}
	w.reconcile(t)
	w.isCanceled(t, "west 1")
	if w.east.fence(t) != "" {
		t.Error("the cluster has a fence at the destination")
	}
}

func TestAMigrationThatHasEndedIsDeleted(t *testing.T) {
	r := newRoot(t, "east", move("east", isDeleted, func(obj *migrationv1alpha1.LogicalClusterMigration) { obj.Status.Phase = completed }))
	if err := r.controller(nil).Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if live, exists := r.stored(t); exists || len(r.reported) != 1 {
		t.Errorf("exists %t: %+v; reported %+v", exists, live, r.reported)
	}
}

func TestAMigrationThatIsDeletedWhileItRunsIsCanceled(t *testing.T) {
	for _, c := range []struct {
		what, call string
		// late means that the origin does not know it.
		late   bool
		tries  int
		record string
	}{
		{"during the copy", "migrations.page", false, 2, "west 1"},
		{"during the copy, before the origin knows it", "migrations.page", true, 1, "west 1"},
		{"behind the fence", digestBehindFence, false, 2, "west 2"},
		{"before the commit", "placements.replace", false, 2, "west 2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.late = c.late
			w.before = func(call string) error {
				if call == c.call {
					w.delete(t)
					w.clock.Step(reportInterval + 1)
				}
				return nil
			}
			for range c.tries {
				w.reconcile(t)
			}
			w.isCanceled(t, c.record)
		})
	}
}

func TestAMigrationContinuesAfterARestart(t *testing.T) {
	for _, c := range []struct {
		what string
		// failures are the calls at which shard east restarts, one after the other.
		failures []string
		deleted  bool
		record   string
	}{
		{"during the copy", []string{"migrations.page"}, false, ""},
		{"before the fence", []string{"migrations.step"}, false, ""},
		{"while all objects are compared", []string{"migrations.digest"}, false, ""},
		{"behind the fence", []string{digestBehindFence}, false, ""},
		{"behind the fence, and when its copy was deleted", []string{digestBehindFence, "migrations.page"}, false, ""},
		{"before the commit", []string{"placements.replace"}, false, ""},
		{"deleted during the copy", []string{"migrations.page"}, true, "west 1"},
		{"deleted behind the fence", []string{digestBehindFence}, true, "west 2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for _, call := range c.failures {
				w.failAt(call)
				w.reconcile(t)
				w.restart()
			}
			before, _ := w.stored(t)
			if s := before.Status; s.OriginShard != "west" || s.Epoch != 2 {
				t.Errorf("the status before the restart is %+v", s)
			}
			w.before = nil
			if c.deleted {
				w.delete(t)
				w.reconcile(t)
				w.isCanceled(t, c.record)
				return
			}
			w.reconcile(t)
			w.isMoved(t)
			after, _ := w.stored(t)
			if s := after.Status; s.OriginShard != "west" || s.Epoch != 2 || s.EntriesCopied != before.Status.EntriesCopied+collections {
				t.Errorf("the status is %+v, and was %+v", s, before.Status)
			}
		})
	}
}

func TestAMigrationThatIsCreatedAgainBeginsAgain(t *testing.T) {
	w := newWorld(t)
	w.failAt("migrations.prepare")
	w.reconcile(t)
	again := move("east")
	again.UID = "again"
	w.Store(again)
	w.Show(again)
	w.before, w.reported = nil, nil
	w.reconcile(t)
	w.isMoved(t)
	for _, report := range w.reported {
		if report.UID != again.UID {
			t.Errorf("reported %+v", report)
		}
	}
}

func TestWhatIsCopiedIsReportedOnceInAnInterval(t *testing.T) {
	w := newWorld(t)
	w.before = func(call string) error {
		if call == "migrations.page" { // of one entry
			w.clock.Step(reportInterval * 2 / 5)
		}
		return nil
	}
	w.reconcile(t)
	w.isMoved(t)
	var copied []int64
	for _, report := range w.reported {
		if s := report.Status; s != nil && s.Phase == migrating && s.EntriesCopied > 0 {
			copied = append(copied, s.EntriesCopied)
		}
	}
	if want := []int64{3, 6, 9}; !slices.Equal(copied, want) {
		t.Errorf("reported %v copied entries, want %v", copied, want)
	}
}

// once returns a function that fails for the first report of a kind.
func once(of func(migrationv1alpha1.LogicalClusterMigrationStatus) bool) func(migration.Report) error {
	failed := false
	return func(in migration.Report) error {
		if failed || in.Status == nil || !of(*in.Status) {
			return nil
		}
		failed = true
		return errDown
	}
}

func isFinal(s migrationv1alpha1.LogicalClusterMigrationStatus) bool   { return s.Phase.IsFinal() }
func isPlanned(s migrationv1alpha1.LogicalClusterMigrationStatus) bool { return s.OriginShard != "" }

func TestAnEndThatIsNotReportedIsReportedAgain(t *testing.T) {
	for _, c := range []struct {
		what    string
		prepare func(*world)
		// recover is what changes before the second report.
		recover func(*world)
		check   func(*testing.T, *world)
	}{
		{"it is completed", func(*world) {}, func(*world) {}, func(t *testing.T, w *world) { w.isMoved(t) }},
		{"it is refused", func(w *world) { w.destination.Version = "v1.3.0" }, func(w *world) { w.destination.Version = "v1.4.0" },
			func(t *testing.T, w *world) { isRefused(t, w.root, "the destination has version v1.3.0") }},
		{"it is canceled", func(w *world) {
			w.Store(move("east", isDeleted))
			w.Show(move("east", isDeleted))
		}, func(*world) {}, func(t *testing.T, w *world) { w.isCanceled(t, "west 1") }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.prepare(w)
			w.refuse = once(isFinal)
			w.reconcile(t)
			c.recover(w)
			w.reconcile(t)
			c.check(t, w)
		})
	}
}

func TestAPlanThatIsNotReportedIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		what          string
		lost, deleted bool
	}{
		{"the report is refused", false, false},
		{"the report is refused, and the migration deleted", false, true},
		{"the response is lost", true, false},
		{"the response is lost, and the migration deleted", true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.refuse = once(isPlanned)
			if c.lost {
				w.refuse, w.lose = nil, w.refuse
			}
			w.before = func(call string) error {
				if strings.HasPrefix(call, "migrations.") && call != "migrations.prepare" {
					t.Errorf("call %s before the plan is stored", call)
				}
				return nil
			}
			w.reconcile(t)
			w.before = nil
			if c.deleted {
				w.delete(t)
				w.reconcile(t)
				w.isCanceled(t, "west 1")
				return
			}
			w.reconcile(t)
			w.isMoved(t)
		})
	}
}

func TestAClusterIsServedAgainIfItsRestCannotBeCopied(t *testing.T) {
	w := newWorld(t)
	w.failAt(digestBehindFence)
	w.reconcile(t)
	if w.west.fence(t) != storage.FenceLeaving {
		t.Fatalf("the fence is %q", w.west.fence(t))
	}
	w.clock.Step(fenceLimit - time.Second)
	w.reconcile(t)
	if w.west.fence(t) != storage.FenceLeaving {
		t.Fatal("the migration has ended before the limit")
	}
	w.clock.Step(time.Second)
	for range 2 {
		w.reconcile(t)
	}
	live, _ := w.stored(t)
	if live.Status.Phase != failed || condition(live.Status, migrationv1alpha1.Completed) != "False Failed" ||
		!strings.Contains(message(live.Status, migrationv1alpha1.Completed), "could not be copied within 5m0s") {
		t.Errorf("the status is %+v", live.Status)
	}
	if w.west.fence(t) != "" || w.west.keys(t) != collections || w.east.keys(t) != 0 || w.record(t) != "west 2" {
		t.Errorf("west has the fence %q and %d keys, east %d keys, the record is %s", w.west.fence(t), w.west.keys(t), w.east.keys(t), w.record(t))
	}
}
