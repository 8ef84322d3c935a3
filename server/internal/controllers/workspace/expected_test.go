package workspace

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/informers"
)

func TestOnlyWorkspacesThatWaitTooLongAreReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var enqueued []string
		e := newExpected(clock.RealClock{}, func(key informers.Key) { enqueued = append(enqueued, key.Name) })
		passes := func(intervals time.Duration, want ...string) {
			t.Helper()
			time.Sleep(intervals * expectedInterval)
			synctest.Wait()
			if !slices.Equal(enqueued, want) {
				t.Errorf("%v are reconciled, want %v", enqueued, want)
			}
			enqueued = nil
		}
		settled, late, again := informers.Key{Name: "settled"}, informers.Key{Name: "late"}, informers.Key{Name: "again"}
		for _, key := range []informers.Key{settled, late, again} {
			e.add(key)
		}
		e.arrived(settled)
		passes(1)
		e.arrived(again)
		passes(1, "late")
		e.add(again)
		passes(2, "again")
		passes(5)
		if len(e.young)+len(e.aged) > 0 || e.timer != nil {
			t.Errorf("%v and %v wait, timer %v", e.young, e.aged, e.timer)
		}
	})
}
