package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Remote is the origin of a migration, called by its destination.
type Remote interface {
	State(ctx context.Context, m Migration) (State, error)
	Do(ctx context.Context, m Migration, step Step) (State, error)
	Collections(ctx context.Context, in Read) (Answer, error)
	Page(ctx context.Context, in Read) (Answer, error)
	Changes(ctx context.Context, in Read) (Answer, error)
	Digest(ctx context.Context, in Read) (Answer, error)
}

// Mover drives a migration at the destination.
type Mover struct {
	Migration Migration
	Store     *storage.Backend
	Copies    *storage.Copies
	Origin    Remote
	Records   Records
	// Canceled reports whether the migration should not be committed.
	Canceled func() bool
	// Copied, if it is not nil, is called with what was copied.
	Copied func(entries []storage.Entry)
	// Arrive, if it is not nil, changes the annotations of the LogicalCluster when the cluster has moved here.
	Arrive func(annotations map[string]string)
	// Clock measures how long changes are followed.
	Clock clock.PassiveClock

	copied, complete, cleaned bool
	revision                  int64     // of the origin, until which changes are copied
	collections               []string  // with keys of the cluster
	compared                  revisions // at which the copy was equal to the origin
}

// revisions are those of the two stores.
type revisions struct{ origin, destination int64 }

// When the rest is copied behind the fence: clients may write faster than a copy can follow.
const (
	// closeEnough is the number of changed keys that are few.
	closeEnough = 50
	// shortRound is how long copying and comparing all changes may take. The rest takes about as long. etcd delivers the changes up to 100 ms
	// late, to the copy and to the comparison.
	shortRound = 400 * time.Millisecond
	// followLimit is how long changes are followed, and restTimeout how long those are that were made before the fence.
	followLimit = time.Minute
	restTimeout = 30 * time.Second
)

// knownPause is the pause between two questions whether all processes know a fence.
const knownPause = 5 * time.Millisecond

// Next observes the migration and returns its next step.
func (v *Mover) Next(ctx context.Context) (Step, Observed, error) {
	m := v.Migration
	o := Observed{Copied: v.copied, Complete: v.complete, Cleaned: v.cleaned, Canceled: v.Canceled()}
	var err error
	o.Record, err = v.Records.Record(ctx, m.Cluster)
	if o.Gone = errors.Is(err, errGone); err != nil && !o.Gone {
		return "", o, fmt.Errorf("reading the placement of logical cluster %q: %w", m.Cluster, err)
	}
	if o.Destination, _, err = v.Store.Fence(ctx, m.Cluster); err != nil {
		return "", o, err
	}
	origin, err := v.Origin.State(ctx, m)
	if err != nil && !o.Gone && m.verdict(o.Record) == committed && m.stateOf(o.Destination) != "" {
		err = nil // it may be down: the destination serves the cluster first
	}
	o.Origin = origin.Fence
	return m.Next(o), o, err
}

// Do executes a step.
func (v *Mover) Do(ctx context.Context, step Step, o Observed) error {
	m, ctx := v.Migration, logicalcluster.WithName(ctx, v.Migration.Cluster)
	arriving, settling := m.Fence(storage.FenceArriving, m.Destination), m.Fence(storage.FenceSettling, m.Destination)
	var err error
	switch step {
	case StepGate:
		_, err = v.Store.SwapFence(ctx, m.Cluster, o.Destination, arriving)
	case StepCopy:
		v.copied, v.complete = false, false
		err = v.copy(ctx, arriving)
		v.copied = err == nil
	case StepFinish:
		err = v.finish(ctx, arriving)
		v.complete, v.copied = err == nil, err == nil || !errors.Is(err, errDifferent) && !apierrors.IsResourceExpired(err)
	case StepCommit:
		err = v.Records.Replace(ctx, o.Record, m.after(o.Record))
	case StepSettle:
		_, err = v.Store.SwapFence(ctx, m.Cluster, arriving, settling)
	case StepPublish:
		err = v.publish(ctx, settling)
	case StepAbort:
		err = v.Records.Replace(ctx, o.Record, m.afterAbort(o.Record))
	case StepDiscard:
		if err = v.Copies.Clear(ctx, arriving); err == nil {
			_, err = v.Store.SwapFence(ctx, m.Cluster, arriving, m.Fence(storage.FenceMoved, m.Destination))
		}
	case StepLeave, StepRelease, StepWithdraw, StepForward, StepClean:
		_, err = v.Origin.Do(ctx, m, step)
		v.cleaned = step == StepClean && err == nil
	default:
		err = errors.New("the migration has ended")
	}
	if err != nil {
		return fmt.Errorf("step %s of the migration of logical cluster %q: %w", step, m.Cluster, err)
	}
	return nil
}

// known waits until all processes of the destination know its fence.
func (v *Mover) known(ctx context.Context) error {
	_, since, err := v.Store.Fence(ctx, v.Migration.Cluster)
	if err != nil {
		return err
	}
	for {
		known, err := v.Store.FencesKnown(ctx, since)
		if known || err != nil {
			return err
		}
		select {
		case <-time.After(knownPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// copy copies all keys and follows the changes until few are left.
func (v *Mover) copy(ctx context.Context, arriving *storage.Fence) error {
	if err := v.known(ctx); err != nil {
		return err
	}
	if err := v.Copies.Clear(ctx, arriving); err != nil { // of an earlier attempt
		return err
	}
	v.collections, v.revision = nil, 0
	for in := (Read{Migration: v.Migration}); ; {
		found, err := v.Origin.Collections(ctx, in)
		if err != nil {
			return err
		}
		v.collections = append(v.collections, found.Collections...)
		if in.Revision, in.After = found.Revision, found.Next; in.After == "" {
			v.revision = found.Revision
			break
		}
	}
	for _, collection := range v.collections {
		for in := (Read{Migration: v.Migration, Revision: v.revision, Collection: collection}); ; {
			page, err := v.Origin.Page(ctx, in)
			if err == nil {
				err = v.apply(ctx, arriving, page.Entries)
			}
			if err != nil {
				return err
			}
			if in.After = page.Next; in.After == "" {
				break
			}
		}
	}
	if err := v.compare(ctx); err != nil {
		return err
	}
	if err := v.raise(ctx); err != nil { // most of it, while clients are served
		return err
	}
	for began := v.Clock.Now(); ; {
		round := v.Clock.Now()
		changes, err := v.follow(ctx, arriving)
		if err == nil {
			err = v.compareChanges(ctx)
		}
		if err != nil || isClose(changes, v.Clock.Since(round)) || v.Clock.Since(began) > followLimit {
			return err
		}
	}
}

// isClose reports whether few changes are left after a round that copied some.
func isClose(changes []storage.Entry, round time.Duration) bool {
	return !storage.IsFull(changes) && (len(changes) <= closeEnough || round <= shortRound)
}

// apply writes entries, and counts them.
func (v *Mover) apply(ctx context.Context, arriving *storage.Fence, entries []storage.Entry) error {
	err := v.Copies.Apply(ctx, arriving, entries)
	if err == nil && v.Copied != nil {
		v.Copied(entries)
	}
	return err
}

// follow copies the next changes and returns them.
func (v *Mover) follow(ctx context.Context, arriving *storage.Fence) ([]storage.Entry, error) {
	changes, err := v.Origin.Changes(ctx, Read{Migration: v.Migration, Revision: v.revision})
	if err == nil {
		err = v.apply(ctx, arriving, changes.Entries)
	}
	if err != nil {
		return nil, err
	}
	v.revision = changes.Revision
	for _, entry := range changes.Entries {
		if collection, ok := storage.CollectionOf(entry.Key); ok && !slices.Contains(v.collections, collection) {
			v.collections = append(v.collections, collection)
		}
	}
	return changes.Entries, nil
}

// finish copies what the origin wrote before its fence, and compares it.
func (v *Mover) finish(ctx context.Context, arriving *storage.Fence) error {
	if err := v.followRest(ctx, arriving); err != nil {
		return err
	}
	if err := v.compareChanges(ctx); err != nil {
		return err
	}
	return v.raise(ctx)
}

// followRest copies what the origin wrote before its fence.
func (v *Mover) followRest(ctx context.Context, arriving *storage.Fence) error {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	for {
		origin, err := v.Origin.State(ctx, v.Migration)
		if err != nil {
			return err
		}
		if v.Migration.stateOf(origin.Fence) != storage.FenceLeaving {
			return errors.New("the origin has no fence")
		}
		if _, err := v.follow(ctx, arriving); err != nil {
			return err
		}
		if v.revision >= origin.Since && origin.Known {
			return nil
		}
		if v.Canceled() {
			return errors.New("the migration was canceled")
		}
	}
}

// raise makes the revision of the destination later than that of the origin. Behind the fence, the origin no longer serves the cluster.
func (v *Mover) raise(ctx context.Context) error {
	origin, err := v.Origin.State(ctx, v.Migration)
	if err != nil {
		return err
	}
	return v.Store.Raise(ctx, origin.Revision)
}

// publish serves the cluster at the destination. Its revision was raised before the commit.
func (v *Mover) publish(ctx context.Context, settling *storage.Fence) error {
	if err := v.known(ctx); err != nil {
		return err
	}
	above, err := v.Store.Revision(ctx)
	if err != nil {
		return err
	}
	if err := v.Store.Raise(ctx, int64(above)); err != nil {
		return err
	}
	_, err = v.Copies.Publish(ctx, settling, int64(above), v.held)
	return err
}

// held returns the stored LogicalCluster with its new placement.
func (v *Mover) held(object []byte) ([]byte, error) {
	lc := &unstructured.Unstructured{}
	if err := json.Unmarshal(object, &lc.Object); err != nil {
		return nil, err
	}
	if name := lc.GetName(); name != corev1alpha1.LogicalClusterName {
		return nil, fmt.Errorf("stored under another name: %q", name)
	}
	annotations := lc.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[tenancyv1alpha1.ShardAnnotation] = v.Migration.Destination
	annotations[tenancyv1alpha1.EpochAnnotation] = strconv.FormatUint(v.Migration.Epoch, 10)
	if v.Arrive != nil {
		v.Arrive(annotations)
	}
	lc.SetAnnotations(annotations)
	return json.Marshal(lc.Object)
}
