package migration

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Migration is one attempt to move a logical cluster.
type Migration struct {
	// Name and UID are those of the LogicalClusterMigration in root.
	Name    string              `json:"name"`
	UID     types.UID           `json:"uid"`
	Cluster logicalcluster.Name `json:"cluster"`
	// Origin holds the cluster with the epoch before Epoch; Destination holds it with Epoch.
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
	Epoch       uint64 `json:"epoch"`
}

// Fence returns the fence of this migration in a state, at the origin or at the destination.
func (m Migration) Fence(state storage.FenceState, shard string) *storage.Fence {
	other := m.Destination
	if shard == m.Destination {
		other = m.Origin
	}
	return &storage.Fence{State: state, Epoch: m.Epoch, Shard: other, Migration: m.UID}
}

// stateOf returns the state of a fence of this migration; empty if it is not its own.
func (m Migration) stateOf(fence *storage.Fence) storage.FenceState {
	if fence == nil || fence.Migration != m.UID || fence.Epoch != m.Epoch {
		return ""
	}
	return fence.State
}

// verdict is what the record of the placement says about a migration.
type verdict int

const (
	// undecided: the origin holds the cluster, and the migration may be committed.
	undecided verdict = iota
	// committed: the destination holds the cluster, or held it before another shard.
	committed
	// aborted: the migration can no longer be committed.
	aborted
)

func (m Migration) verdict(record placement.Record) verdict {
	switch {
	case record.Shard == m.Origin && record.Epoch+1 == m.Epoch:
		return undecided
	case record.Shard == m.Destination && record.Epoch == m.Epoch:
		return committed
	}
	return aborted
}

// Step is what a migration does next. Each step can be repeated.
type Step string

// Steps of a migration, in their order.
const (
	StepGate   Step = "Gate"   // hides the cluster at the destination
	StepCopy   Step = "Copy"   // copies all keys, and follows their changes
	StepLeave  Step = "Leave"  // fences the cluster at the origin
	StepFinish Step = "Finish" // copies and compares the rest
	StepCommit Step = "Commit" // changes the record of the placement

	StepSettle   Step = "Settle"   // makes reads across all clusters of the destination wait
	StepPublish  Step = "Publish"  // serves the cluster at the destination
	StepWithdraw Step = "Withdraw" // makes reads across all clusters of the origin wait
	StepForward  Step = "Forward"  // hides the cluster at the origin
	StepClean    Step = "Clean"    // deletes the keys at the origin
	StepDone     Step = "Done"

	StepAbort    Step = "Abort"    // raises the epoch of the origin, so that the migration cannot be committed
	StepRelease  Step = "Release"  // serves the cluster at the origin
	StepDiscard  Step = "Discard"  // deletes the copy
	StepCanceled Step = "Canceled" // the origin holds the cluster as before

	// StepRefused means that the cluster is in another migration, or is not held as this migration expects.
	StepRefused Step = "Refused"
)

// Observed is the state of a migration. It is read again before each step.
type Observed struct {
	Record placement.Record
	// Gone means that there is no record, because the workspace was deleted.
	Gone                bool
	Origin, Destination *storage.Fence
	// Copied means that a copy follows the changes of the origin, Complete that it is verified behind the fence.
	Copied, Complete bool
	// Cleaned means that the origin has no keys of the cluster.
	Cleaned bool
	// Canceled means that the migration should not be committed, if it is not yet.
	Canceled bool
}

// Next returns the next step of a migration. Only the record of the placement decides who holds the cluster: fences follow it.
func (m Migration) Next(o Observed) Step {
	if o.Gone {
		return m.withoutWorkspace(o)
	}
	switch m.verdict(o.Record) {
	case committed:
		return m.afterCommit(o)
	case aborted:
		return m.back(o)
	default:
		return m.beforeCommit(o)
	}
}

// withoutWorkspace returns the next step after the workspace was deleted: only a copy that was not committed is left. The holder deletes no
// logical cluster behind a fence, so the origin has none.
func (m Migration) withoutWorkspace(o Observed) Step {
	if m.stateOf(o.Destination) == storage.FenceArriving && m.stateOf(o.Origin) == "" {
		return StepDiscard
	}
	return StepCanceled
}

// beforeCommit returns the next step when the origin holds the cluster, and the migration may be committed.
func (m Migration) beforeCommit(o Observed) Step {
	origin, destination := m.stateOf(o.Origin), m.stateOf(o.Destination)
	switch {
	case o.Canceled && origin == storage.FenceLeaving:
		return StepAbort
	case o.Canceled:
		return m.back(o)
	case o.Origin != nil && origin != storage.FenceLeaving:
		return StepRefused
	case o.Destination != nil && destination == "" && o.Destination.State != storage.FenceMoved:
		return StepRefused
	case destination == storage.FenceMoved: // its copy was discarded
		return StepRefused
	case destination != storage.FenceArriving:
		return StepGate
	case !o.Copied:
		return StepCopy
	case o.Origin == nil:
		return StepLeave
	case !o.Complete:
		return StepFinish
	}
	return StepCommit
}

// afterCommit returns the next step when the destination holds the cluster: it serves first, then the origin cleans up.
func (m Migration) afterCommit(o Observed) Step {
	switch m.stateOf(o.Destination) {
	case storage.FenceArriving:
		return StepSettle
	case storage.FenceSettling:
		return StepPublish
	default:
		return m.cleanUp(o, StepDone)
	}
}

// cleanUp returns the next step of an origin that no longer holds the cluster, or end after the last one.
func (m Migration) cleanUp(o Observed, end Step) Step {
	switch m.stateOf(o.Origin) {
	case storage.FenceLeaving:
		return StepWithdraw
	case storage.FenceSettling:
		return StepForward
	case storage.FenceMoved:
		if !o.Cleaned {
			return StepClean
		}
	default:
	}
	return end
}

// back returns the next step when the migration is not committed: the origin serves first, then the destination deletes the copy.
func (m Migration) back(o Observed) Step {
	switch {
	case o.Record.Shard == m.Origin && o.Record.Epoch >= m.Epoch && m.stateOf(o.Origin) == storage.FenceLeaving:
		return StepRelease
	case m.stateOf(o.Destination) == storage.FenceArriving:
		return StepDiscard
	case o.Record.Shard != m.Origin: // another migration was committed since
		return m.cleanUp(o, StepCanceled)
	}
	return StepCanceled
}

// after is the record of the placement after the commit.
func (m Migration) after(record placement.Record) placement.Record {
	record.Shard, record.Epoch = m.Destination, m.Epoch
	return record
}

// afterAbort is the record of the placement after the migration was aborted behind the fence.
func (m Migration) afterAbort(record placement.Record) placement.Record {
	record.Epoch = m.Epoch
	return record
}
