package migration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Records reads and changes the record of a placement, at the parent.
type Records interface {
	// Record reads the current record.
	Record(ctx context.Context, cluster logicalcluster.Name) (placement.Record, error)
	// Replace changes the record from its current value before to after. It fails with a conflict if the value is another one. After any
	// other error, the record may have changed.
	Replace(ctx context.Context, before, after placement.Record) error
}

// Origin is the part of a migration on the shard that the cluster leaves.
type Origin struct {
	// Shard is the name of this shard.
	Shard   string
	Store   *storage.Backend
	Copies  *storage.Copies
	Records Records
	// Accepts returns an error for a migration that no administrator of this shard has accepted, or that is canceled.
	Accepts func(ctx context.Context, m Migration) error
	// Leave, if it is not nil, is called before a cluster that another shard holds disappears from the informers of this shard.
	Leave func(ctx context.Context, cluster logicalcluster.Name) error
}

// State is what a destination knows of the origin.
type State struct {
	Fence *storage.Fence `json:"fence,omitempty"`
	// Since is the revision of the fence, Revision the current one.
	Since    int64 `json:"since,omitempty"`
	Revision int64 `json:"revision"`
	// Known means that all processes of the origin know the fence.
	Known bool `json:"known"`
}

// Read is the request for entries of a cluster.
type Read struct {
	Migration Migration `json:"migration"`
	Revision  int64     `json:"revision"`
	// Collection and After are where a page continues.
	Collection string `json:"collection,omitempty"`
	After      string `json:"after,omitempty"`
	// Collections are those of a digest, unless it is one of the changes after the revision Since.
	Collections []string `json:"collections,omitempty"`
	Since       int64    `json:"since,omitempty"`
}

// Answer is the response to Read.
type Answer struct {
	Entries     []storage.Entry `json:"entries,omitempty"`
	Collections []string        `json:"collections,omitempty"`
	Next        string          `json:"next,omitempty"`
	Revision    int64           `json:"revision,omitempty"`
	Digest      storage.Digest  `json:"digest,omitzero"`
}

// Order is a step that the destination requests.
type Order struct {
	Migration Migration `json:"migration"`
	Step      Step      `json:"step"`
}

var migrationResource = schema.GroupResource{Group: "migration.kcp.io", Resource: "logicalclustermigrations"}

// check returns an error unless the caller is the destination of a migration from this shard.
func (o *Origin) check(caller peers.Identity, m Migration) error {
	if caller != (peers.Identity{Kind: peers.Shard, Name: m.Destination}) || m.Origin != o.Shard || m.Origin == m.Destination ||
		m.Cluster == "" || m.Cluster == logicalcluster.Root || m.Cluster.IsSystem() || m.UID == "" || m.Epoch < 2 {
		return apierrors.NewForbidden(migrationResource, string(m.UID), fmt.Errorf("%s is not the destination of a migration of logical cluster "+
			"%q from shard %q", caller, m.Cluster, o.Shard))
	}
	return nil
}

// State returns the state of the origin.
func (o *Origin) State(ctx context.Context, caller peers.Identity, m Migration) (State, error) {
	if err := o.check(caller, m); err != nil {
		return State{}, err
	}
	return o.state(ctx, m)
}

func (o *Origin) state(ctx context.Context, m Migration) (s State, err error) {
	if s.Fence, s.Since, err = o.Store.Fence(ctx, m.Cluster); err != nil {
		return s, err
	}
	if m.stateOf(s.Fence) == "" && s.Fence != nil {
		s.Fence = &storage.Fence{State: s.Fence.State} // of another migration, which the caller may not know
	}
	if s.Known, err = o.Store.FencesKnown(ctx, s.Since); err != nil {
		return s, err
	}
	revision, err := o.Store.Revision(ctx) // after Known: no process serves the cluster at a later revision
	s.Revision = int64(revision)
	return s, err
}

// Collections, Page, Changes and Digest read the cluster for the destination of an accepted migration, until it is withdrawn.

// Collections returns the collections of the cluster.
func (o *Origin) Collections(ctx context.Context, caller peers.Identity, in Read) (out Answer, err error) {
	return o.read(ctx, caller, in, func(ctx context.Context) error {
		out.Collections, out.Next, out.Revision, err = o.Copies.Collections(ctx, in.Revision, in.After)
		return err
	}, &out)
}

// Page returns entries of a collection.
func (o *Origin) Page(ctx context.Context, caller peers.Identity, in Read) (out Answer, err error) {
	return o.read(ctx, caller, in, func(ctx context.Context) error {
		out.Entries, out.Next, err = o.Copies.Page(ctx, in.Revision, in.Collection, in.After)
		return err
	}, &out)
}

// Changes returns the entries that have changed since a revision.
func (o *Origin) Changes(ctx context.Context, caller peers.Identity, in Read) (out Answer, err error) {
	return o.read(ctx, caller, in, func(ctx context.Context) error {
		out.Entries, out.Revision, err = o.Copies.Changes(ctx, in.Revision)
		return err
	}, &out)
}

// Digest returns the digest of collections, or of changes.
func (o *Origin) Digest(ctx context.Context, caller peers.Identity, in Read) (out Answer, err error) {
	return o.read(ctx, caller, in, func(ctx context.Context) error {
		if in.Since > 0 {
			out.Digest, err = o.Copies.DigestOfChanges(ctx, in.Since, in.Revision)
		} else {
			out.Digest, err = o.Copies.Digest(ctx, in.Revision, in.Collections)
		}
		return err
	}, &out)
}

func (o *Origin) read(ctx context.Context, caller peers.Identity, in Read, do func(context.Context) error, out *Answer) (Answer, error) {
	err := o.check(caller, in.Migration)
	if err == nil {
		err = o.Accepts(ctx, in.Migration)
	}
	if err == nil {
		err = do(logicalcluster.WithName(ctx, in.Migration.Cluster))
	}
	return *out, err
}

// Do executes a step at the origin. It reads the record of the placement itself.
func (o *Origin) Do(ctx context.Context, caller peers.Identity, in Order) (State, error) {
	m := in.Migration
	if err := o.check(caller, m); err != nil {
		return State{}, err
	}
	record, err := o.Records.Record(ctx, m.Cluster)
	if err != nil {
		return State{}, err
	}
	state, err := o.state(ctx, m)
	if err != nil {
		return state, err
	}
	if !m.permits(in.Step, record) {
		return state, apierrors.NewConflict(migrationResource, string(m.UID), fmt.Errorf("the placement does not permit the step %s: shard %q "+
			"holds the logical cluster at epoch %d", in.Step, record.Shard, record.Epoch))
	}
	if in.Step == StepLeave {
		err = o.Accepts(ctx, m)
	}
	if err == nil {
		err = o.do(ctx, m, in.Step, state)
	}
	if err != nil {
		return state, err
	}
	return o.state(ctx, m)
}

// permits reports whether the record of the placement permits a step at the origin.
func (m Migration) permits(step Step, record placement.Record) bool {
	switch step {
	case StepLeave:
		return m.verdict(record) == undecided
	case StepRelease:
		return record.Shard == m.Origin && record.Epoch >= m.Epoch
	case StepWithdraw, StepForward, StepClean:
		return record.Shard != m.Origin && record.Epoch >= m.Epoch
	default:
		return false
	}
}

// do executes a permitted step.
func (o *Origin) do(ctx context.Context, m Migration, step Step, state State) error {
	leaving, settling := m.Fence(storage.FenceLeaving, o.Shard), m.Fence(storage.FenceSettling, o.Shard)
	moved := m.Fence(storage.FenceMoved, o.Shard)
	swap := func(from, to *storage.Fence) error {
		_, err := o.Store.SwapFence(ctx, m.Cluster, from, to)
		return err
	}
	if (step == StepForward || step == StepClean) && !state.Known {
		return apierrors.NewServiceUnavailable("a process of the origin does not know the fence of the logical cluster yet")
	}
	switch step {
	case StepLeave:
		return swap(nil, leaving)
	case StepRelease:
		return swap(leaving, nil)
	case StepWithdraw:
		if o.Leave != nil {
			if err := o.Leave(ctx, m.Cluster); err != nil {
				return err
			}
		}
		return swap(leaving, settling)
	case StepForward:
		return swap(settling, moved)
	default: // StepClean
		return o.Copies.Clear(logicalcluster.WithName(ctx, m.Cluster), moved)
	}
}
