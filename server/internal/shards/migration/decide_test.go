package migration

import (
	"testing"

	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
)

var example = Migration{Name: "move", UID: "uid", Cluster: "moving", Origin: "west", Destination: "east", Epoch: 2}

func record(shard string, epoch uint64) placement.Record {
	return placement.Record{Shard: shard, Epoch: epoch, Cluster: "moving"}
}

func TestStepsFollowTheRecordOfThePlacement(t *testing.T) {
	m := example
	at := func(shard string, state storage.FenceState) *storage.Fence {
		if state == "" {
			return nil
		}
		return m.Fence(state, shard)
	}
	another := &storage.Fence{State: storage.FenceLeaving, Epoch: 2, Shard: "north", Migration: "other"}
	former := &storage.Fence{State: storage.FenceMoved, Epoch: 1, Shard: "west", Migration: "former"}
	before, after, abort := record("west", 1), record("east", 2), record("west", 2)
	const arriving, leaving, settling, moved = storage.FenceArriving, storage.FenceLeaving, storage.FenceSettling, storage.FenceMoved
	for _, c := range []struct {
		what string
		o    Observed
		want Step
	}{
		{"begins", Observed{Record: before}, StepGate},
		{"begins at a former holder", Observed{Record: before, Destination: former}, StepGate},
		{"has a gate", Observed{Record: before, Destination: at("east", arriving)}, StepCopy},
		{"is copied", Observed{Record: before, Destination: at("east", arriving), Copied: true}, StepLeave},
		{"is fenced", Observed{Record: before, Destination: at("east", arriving), Origin: at("west", leaving), Copied: true}, StepFinish},
		{"is fenced and forgotten", Observed{Record: before, Destination: at("east", arriving), Origin: at("west", leaving)}, StepCopy},
		{"is verified", Observed{Record: before, Destination: at("east", arriving), Origin: at("west", leaving), Copied: true, Complete: true}, StepCommit},
		{"is committed", Observed{Record: after, Destination: at("east", arriving), Origin: at("west", leaving)}, StepSettle},
		{"is committed and canceled", Observed{Record: after, Destination: at("east", arriving), Origin: at("west", leaving), Canceled: true}, StepSettle},
		{"settles", Observed{Record: after, Destination: at("east", settling), Origin: at("west", leaving)}, StepPublish},
		{"is published", Observed{Record: after, Origin: at("west", leaving)}, StepWithdraw},
		{"is withdrawn", Observed{Record: after, Origin: at("west", settling)}, StepForward},
		{"is forwarded", Observed{Record: after, Origin: at("west", moved)}, StepClean},
		{"is cleaned", Observed{Record: after, Origin: at("west", moved), Cleaned: true}, StepDone},

		{"is canceled at once", Observed{Record: before, Canceled: true}, StepCanceled},
		{"is canceled during the copy", Observed{Record: before, Destination: at("east", arriving), Canceled: true}, StepDiscard},
		{"is canceled behind the fence", Observed{Record: before, Destination: at("east", arriving), Origin: at("west", leaving), Canceled: true}, StepAbort},
		{"is aborted", Observed{Record: abort, Destination: at("east", arriving), Origin: at("west", leaving)}, StepRelease},
		{"is released", Observed{Record: abort, Destination: at("east", arriving)}, StepDiscard},
		{"is discarded", Observed{Record: abort, Destination: at("east", moved)}, StepCanceled},
		{"was discarded", Observed{Record: before, Destination: at("east", moved)}, StepRefused},

		{"meets another migration at the origin", Observed{Record: before, Origin: another}, StepRefused},
		{"meets another migration at the destination", Observed{Record: before, Destination: another}, StepRefused},
		{"is overtaken", Observed{Record: record("north", 3), Destination: at("east", arriving)}, StepDiscard},
		{"is overtaken and published", Observed{Record: record("north", 3), Origin: at("west", leaving)}, StepWithdraw},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := m.Next(c.o); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnOriginGivesUpOnlyWhatAnotherShardHolds(t *testing.T) {
	permitted := map[Step]map[placement.Record]bool{
		StepLeave:    {record("west", 1): true},
		StepRelease:  {record("west", 2): true, record("west", 5): true},
		StepWithdraw: {record("east", 2): true, record("north", 3): true},
		StepCommit:   {}, StepPublish: {}, "": {},
	}
	permitted[StepForward], permitted[StepClean] = permitted[StepWithdraw], permitted[StepWithdraw]
	for step, records := range permitted {
		for _, r := range []placement.Record{
			record("west", 1), record("west", 2), record("west", 5), record("east", 1), record("east", 2), record("north", 1), record("north", 3), {},
		} {
			if got := example.permits(step, r); got != records[r] {
				t.Errorf("step %q with %+v: got %t", step, r, got)
			}
		}
	}
}
