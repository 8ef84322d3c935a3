package workspace

import (
	"testing"
	"time"

	"github.com/kcplane/kcp/server/internal/informers"
)

func TestOnlyWorkspacesThatWaitTooLongAreReconciled(t *testing.T) {
	enqueued := make(chan informers.Key, 10)
	e := newExpected(10*time.Millisecond, func(key informers.Key) { enqueued <- key })
	settled, late, again := informers.Key{Name: "settled"}, informers.Key{Name: "late"}, informers.Key{Name: "again"}
	for _, key := range []informers.Key{settled, late, again} {
		e.add(key)
	}
	e.arrived(settled)
	e.arrived(again)
	if key := <-enqueued; key != late {
		t.Errorf("%s is reconciled", key)
	}
	e.add(again)
	if key := <-enqueued; key != again {
		t.Errorf("%s is reconciled", key)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(enqueued) > 0 || len(e.young)+len(e.aged) > 0 || e.timer != nil {
		t.Errorf("%d are reconciled, %v and %v wait, timer %v", len(enqueued), e.young, e.aged, e.timer)
	}
}
