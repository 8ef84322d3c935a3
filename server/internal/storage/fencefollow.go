package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// processLife is how long etcd keeps the key of a process that has stopped without removing it. Reads of a process are refused from
	// then on, until it has read the fences again.
	processLife = 15 * time.Second
	// processPause is the pause before a process tries again to follow the fences.
	processPause = 500 * time.Millisecond
)

// process is the part of a process in the fences of a store: its key has the revision until which it knows them.
//
// Invariants:
//   - The key exists before the process reads the fences, with revision zero.
//   - Before the key gets a revision, the watches that a fence ends have ended, and every later read checks the fence.
//   - A process whose key may have expired refuses reads, because a migration no longer waits for it.
type process struct {
	backend *Backend
	key     string
	lease   clientv3.LeaseID
}

// Owner is the name of the process that runs the etcd of its store itself. There is only one at a time.
const Owner = "owner"

// FollowFences makes this process respect fences in its reads, until stop is called. It returns when all of them are known, and must be
// called before anything is read. Afterwards, and without it, all reads are refused. The name is that of the process among those of its
// store; it takes the place of an earlier process of that name, which has ended and is not waited for. An empty name is a new one.
func (b *Backend) FollowFences(ctx context.Context, name string) (stop func(), err error) {
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	first, ended := make(chan error, 1), make(chan struct{})
	stop = func() {
		cancel()
		<-ended
	}
	if name == "" {
		name = rand.Text()
	}
	go func() {
		defer close(ended)
		for ready := first; ; ready = nil {
			err := b.followFences(follow, name, ready)
			if follow.Err() != nil {
				return
			}
			klog.FromContext(follow).Info("Reading the fences of logical clusters again", decisionlog.Reason, err)
			select {
			case <-time.After(processPause):
			case <-follow.Done():
				return
			}
		}
	}()
	select {
	case err = <-first:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// followFences registers a process and follows the fences until it is no longer registered. It reports to ready when they are known.
func (b *Backend) followFences(ctx context.Context, name string, ready chan<- error) error {
	began := time.Now()
	granted, err := b.client.Client.Grant(ctx, int64(processLife/time.Second))
	if err != nil {
		return reported(ready, fmt.Errorf("registering this process: %w", err))
	}
	p := &process{backend: b, key: b.fences.processes + name, lease: granted.ID}
	defer p.remove()
	if err := p.put(ctx, 0); err != nil {
		return reported(ready, err)
	}
	if err := p.load(ctx); err != nil {
		return reported(ready, err)
	}
	b.fences.extend(began.Add(processLife))
	_ = reported(ready, nil)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(p.renew(ctx)) }()
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		klog.FromContext(ctx).V(2).Info("Reading the fences of logical clusters again", decisionlog.Reason, err)
		select {
		case <-time.After(processPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := p.load(ctx); err != nil {
			return err
		}
	}
}

// reported reports an error to ready, unless that is nil, and returns it.
func reported(ready chan<- error, err error) error {
	if ready != nil {
		ready <- err
	}
	return err
}

// load reads the fences.
func (p *process) load(ctx context.Context) error {
	fences := p.backend.fences
	found, err := p.backend.client.Client.Get(ctx, fences.moves, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading the fences of logical clusters: %w", err)
	}
	state, err := loadFences(fences.moves, found.Kvs, found.Header.Revision)
	if err != nil {
		return err
	}
	if before := fences.state.Load(); before != nil {
		state.all = max(state.all, before.all) // a later fence may have replaced that of a moved cluster
	}
	fences.become(state)
	return p.put(ctx, state.revision)
}

// put records the revision until which the process knows the fences.
func (p *process) put(ctx context.Context, revision int64) error {
	_, err := p.backend.client.Client.Put(ctx, p.key, strconv.FormatInt(revision, 10), clientv3.WithLease(p.lease))
	if err != nil {
		return fmt.Errorf("recording the known fences: %w", err)
	}
	return nil
}

// remove removes the key of the process, so that no migration waits until it expires. The process refuses reads already.
func (p *process) remove() {
	p.backend.fences.lose()
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	_, _ = p.backend.client.Client.Revoke(ctx, p.lease) // it expires otherwise
}

// renew keeps the lease of the process, and returns the error that ends it.
func (p *process) renew(ctx context.Context) error {
	tick := time.NewTicker(processLife / 5)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		sent := time.Now()
		try, cancel := context.WithTimeout(ctx, processLife/3)
		kept, err := p.backend.client.Client.KeepAliveOnce(try, p.lease)
		cancel()
		switch {
		case err == nil && kept.TTL > 0:
			p.backend.fences.extend(sent.Add(processLife))
		case err == nil || !p.backend.fences.current():
			return errors.Join(errors.New("the lease of this process has expired"), err)
		}
	}
}

// follow applies changes of fences until an error.
func (p *process) follow(ctx context.Context) error {
	fences := p.backend.fences
	watched := p.backend.client.Client.Watch(clientv3.WithRequireLeader(ctx), fences.moves, clientv3.WithPrefix(),
		clientv3.WithRev(fences.state.Load().revision+1), clientv3.WithProgressNotify())
	for response := range watched {
		if err := response.Err(); err != nil {
			return err
		}
		if len(response.Events) == 0 {
			continue
		}
		next, err := fences.state.Load().after(fences.moves, response.Events, response.Header.Revision)
		if err != nil {
			return err
		}
		fences.become(next)
		if err := p.put(ctx, next.revision); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// FencesKnown reports whether every process of this store knows its fences until a revision.
func (b *Backend) FencesKnown(ctx context.Context, revision int64) (bool, error) {
	found, err := b.client.Client.Get(ctx, b.fences.processes, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	for _, kv := range found.Kvs {
		known, err := strconv.ParseInt(strings.TrimSpace(string(kv.Value)), 10, 64)
		if err != nil {
			return false, fmt.Errorf("value of etcd key %s: %w", kv.Key, err)
		}
		if known < revision {
			return false, nil
		}
	}
	return true, nil
}
