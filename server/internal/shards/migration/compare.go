package migration

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/kcplane/kcp/server/internal/storage"
)

// This file compares a copy with the origin. All objects are compared once, while the origin serves the cluster. From then on, each shard
// computes from the history of its own store how the changes since the last comparison have changed its digest. Behind the fence, only the
// last changes are compared, however many objects there are.

// errDifferent means that the copy differs from the origin.
var errDifferent = errors.New("the copy differs from the origin; it is copied again")

// compare compares all objects that are copied until v.revision.
func (v *Mover) compare(ctx context.Context) error {
	return v.compareDigests(ctx, Read{Collections: v.collections}, func(ctx context.Context, until int64) (storage.Digest, error) {
		return v.Copies.Digest(ctx, until, v.collections)
	})
}

// compareChanges compares what is copied since the last comparison.
func (v *Mover) compareChanges(ctx context.Context) error {
	if v.compared.origin == 0 {
		return errors.New("the copy is not compared")
	}
	return v.compareDigests(ctx, Read{Since: v.compared.origin}, func(ctx context.Context, until int64) (storage.Digest, error) {
		return v.Copies.DigestOfChanges(ctx, v.compared.destination, until)
	})
}

// compareDigests compares a digest of the origin until v.revision with that of this shard until its current revision.
func (v *Mover) compareDigests(ctx context.Context, in Read, read func(ctx context.Context, until int64) (storage.Digest, error)) error {
	in.Migration, in.Revision = v.Migration, v.revision
	now, err := v.Store.Revision(ctx)
	if err != nil {
		return err
	}
	var there Answer
	var here storage.Digest
	both, reading := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		there, err = v.Origin.Digest(reading, in)
		return err
	})
	both.Go(func() (err error) {
		here, err = read(reading, int64(now))
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	if here != there.Digest {
		return fmt.Errorf("%d of %d keys: %w", here.Keys, there.Digest.Keys, errDifferent)
	}
	v.compared = revisions{origin: v.revision, destination: int64(now)}
	return nil
}
