package cacheserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// rootShard is the shard that holds the Shard objects, and rootCluster the logical cluster that they are in.
const (
	rootShard   = "root"
	rootCluster = logicalcluster.Name("root")
)

// parts decides who may use the part of a shard.
//
// Invariants:
//   - Each write compares, in its etcd transaction, the revision of the record of its part: what the record says holds at the moment of the
//     write, whichever replica has stored it. What is in memory only saves reads.
//   - Within an incarnation, the term in a record never falls, and within a term, the round never falls.
//   - A part is purged only after a DELETE of its Shard object by the root shard, and the record says so in the same transaction. The Shard
//     object cannot be created again until the part is empty.
type parts struct {
	backend *storage.Backend
	clock   clock.Clock
	woken   chan struct{}

	mu    sync.Mutex
	known map[string]stored // by shard
}

// stored is a record with its revision.
type stored struct {
	part
	revision int64
}

func newParts(b *storage.Backend, c clock.Clock) *parts {
	return &parts{backend: b, clock: c, woken: make(chan struct{}, 1), known: map[string]stored{}}
}

const partRecords = "parts/"

func (p *parts) get(ctx context.Context, shard string) (stored, error) {
	p.mu.Lock()
	s, ok := p.known[shard]
	p.mu.Unlock()
	if ok {
		return s, nil
	}
	return p.read(ctx, shard)
}

// read returns the record of a shard from etcd.
func (p *parts) read(ctx context.Context, shard string) (stored, error) {
	value, revision, err := p.backend.RevisionedRecord(ctx, partRecords+shard)
	if err != nil {
		return stored{}, apierrors.NewServiceUnavailable(err.Error())
	}
	s := stored{revision: revision}
	if value != "" {
		if err := json.Unmarshal([]byte(value), &s.part); err != nil {
			return stored{}, apierrors.NewInternalError(fmt.Errorf("record of shard %q: %w", shard, err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[shard] = s
	return s, nil
}

// forget makes get read the record of a shard again.
func (p *parts) forget(shard string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, shard)
}

func (p part) encode() string {
	value, _ := json.Marshal(p) // strings, a number and times
	return string(value)
}

// maxAttempts is how often a request is repeated because a record has changed.
const maxAttempts = 5

var errBusy = apierrors.NewTooManyRequests("several leaders use the part of the shard at a time", 1)

// claim records the leader that sends a request for the part of its own shard, and returns it.
func (h *Handler) claim(r *http.Request, who caller, t target) (claim, error) {
	c, err := claimOf(r.Header)
	if err != nil || c == (claim{}) {
		return claim{}, err
	}
	if who.shard == "" || who.shard != t.place.Shard {
		return claim{}, forbidden("%s and %s are for requests of a shard for what it offers itself", IncarnationHeader, LeaderTermHeader)
	}
	return c, h.parts.claim(r.Context(), who.shard, c)
}

func (p *parts) claim(ctx context.Context, shard string, c claim) error {
	for range maxAttempts {
		was, err := p.get(ctx, shard)
		if err != nil {
			return err
		}
		is, err := p.accept(shard, was, c)
		if err != nil || is.equal(was.part) {
			return err
		}
		_, err = p.backend.SwapRecord(ctx, partRecords+shard, was.revision, is.encode())
		p.forget(shard)
		if !storage.IsRecordChanged(err) {
			if err != nil {
				return apierrors.NewServiceUnavailable(err.Error())
			}
			return nil
		}
	}
	return errBusy
}

func (p *parts) accept(shard string, was stored, c claim) (part, error) {
	is, err := was.part.accept(c, p.clock.Now())
	if err != nil {
		err = apierrors.NewConflict(schema.GroupResource{Group: corev1alpha1.SchemeGroupVersion.Group, Resource: "shards"}, shard, err)
	}
	return is, err
}

// write calls do, with a context that makes it fail if a later leader uses the part, or if the shard is removed. A write of a Shard object
// by the root shard also changes the record of that shard.
func (p *parts) write(ctx context.Context, t target, c claim, verb string,
	do func(context.Context) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	for range maxAttempts {
		conditions, err := p.conditions(ctx, t, c, verb)
		if err != nil {
			return nil, err
		}
		obj, err := do(storage.WithConditions(ctx, conditions...))
		for _, condition := range conditions {
			if condition.Set != "" || storage.IsRecordChanged(err) {
				p.forget(strings.TrimPrefix(condition.Record, partRecords))
			}
		}
		if !storage.IsRecordChanged(err) {
			if len(conditions) > 1 {
				p.wake()
			}
			return obj, err
		}
	}
	return nil, errBusy
}

// conditions returns those of a write.
func (p *parts) conditions(ctx context.Context, t target, c claim, verb string) ([]storage.Condition, error) {
	own, err := p.get(ctx, t.place.Shard)
	if err != nil {
		return nil, err
	}
	if _, err := p.accept(t.place.Shard, own, c); err != nil {
		return nil, err
	}
	if own.Removed {
		return nil, forbidden("shard %q is removed: it has no Shard object", t.place.Shard)
	}
	conditions := []storage.Condition{{Record: partRecords + t.place.Shard, Revision: own.revision}}
	if t.place != (storage.Place{Shard: rootShard, Cluster: rootCluster}) || t.gvr() != shards {
		return conditions, nil
	}
	changed, err := p.registered(ctx, t.name, verb)
	if changed != nil {
		conditions = append(conditions, *changed)
	}
	return conditions, err
}
