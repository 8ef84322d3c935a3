package cacheserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
)

// purgeInterval is how often removed shards are looked for that another replica has not finished to purge.
const purgeInterval = time.Minute

var shards = corev1alpha1.SchemeGroupVersion.WithResource("shards")

// registered returns how a write of a Shard object by the root shard changes the record of that shard; nil if it does not.
func (p *parts) registered(ctx context.Context, shard, verb string) (*storage.Condition, error) {
	if shard == rootShard || verb != "create" && verb != "delete" {
		return nil, nil
	}
	was, err := p.get(ctx, shard)
	if err != nil {
		return nil, err
	}
	is := was.part
	switch {
	case verb == "create" && !was.Removed:
		return nil, nil
	case verb == "create" && !was.Purged:
		p.forget(shard)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("what the removed shard %q has offered is being deleted", shard), 1)
	case verb == "create":
		is.Removed, is.Purged = false, false
	default:
		is.Removed, is.Purged = true, false
	}
	return &storage.Condition{Record: partRecords + shard, Revision: was.revision, Set: is.encode()}, nil
}

// wake makes run look for removed shards.
func (p *parts) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// run purges the parts of removed shards until ctx ends, one after the other. All replicas do so: each page is deleted by one.
func (p *parts) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.purge(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Deleting what removed shards have offered failed, will retry", decisionlog.Error, err)
		}
		select {
		case <-ctx.Done():
		case <-p.woken:
		case <-p.clock.After(purgeInterval):
		}
	}
}

// purge deletes what removed shards have offered. It continues where another call was interrupted.
func (p *parts) purge(ctx context.Context) error {
	var names []string
	if err := p.backend.RecordsBelow(ctx, partRecords, func(name, _ string) { names = append(names, name) }); err != nil {
		return err
	}
	for _, shard := range names {
		s, err := p.read(ctx, shard)
		if err != nil {
			return err
		}
		if !s.Removed || s.Purged {
			continue
		}
		if err := p.purgeShard(ctx, shard, s); err != nil && !storage.IsRecordChanged(err) {
			return fmt.Errorf("shard %s: %w", shard, err)
		}
	}
	return nil
}

func (p *parts) purgeShard(ctx context.Context, shard string, s stored) error {
	defer p.forget(shard)
	record := partRecords + shard
	if err := p.backend.PurgeShard(ctx, shard, storage.Condition{Record: record, Revision: s.revision}); err != nil {
		return err
	}
	s.Purged = true
	if _, err := p.backend.SwapRecord(ctx, record, s.revision, s.encode()); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Deleted what a removed shard has offered", decisionlog.Shard, shard)
	return nil
}
