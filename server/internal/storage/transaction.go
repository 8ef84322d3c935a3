package storage

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Transaction creates objects of several resources and clusters atomically: all of them or, if one already exists, none.
// Only one goroutine may use it, and it must be ended.
//
// The objects share a revision. A transaction cannot contain two objects of one resource, because a watch that breaks
// between their events, and resumes after the revision of the first, would miss the second.
type Transaction struct {
	resources []schema.GroupResource
	held      []put
	absent    []string            // keys that must not exist
	settle    []func(stored bool) // functions that wait for the result of the transaction
	// acknowledge records the revision of the stored objects.
	acknowledge []func(revision int64)
}

type put struct {
	key     string
	value   []byte
	options etcdkubernetes.PutOptions
	fence   string // key of the fence of its cluster; empty without fences
}

// part is the part of one Create in a transaction.
type part struct {
	*Transaction
	last bool
}

type partKey struct{}

// Hold returns a context for one Create that does not store its object yet, and leaves the object without a resource
// version.
func (t *Transaction) Hold(ctx context.Context) context.Context {
	return context.WithValue(ctx, partKey{}, part{t, false})
}

// Commit returns a context for the last Create, which also stores the held objects. If any of them exists, it fails as
// if its own object existed.
func (t *Transaction) Commit(ctx context.Context) context.Context {
	return context.WithValue(ctx, partKey{}, part{t, true})
}

// End drops held objects. After the Create of Commit there are none.
func (t *Transaction) End() { t.ended(false) }

func (t *Transaction) ended(stored bool) {
	for _, settle := range t.settle {
		settle(stored)
	}
	t.settle, t.held = nil, nil
}

// settled calls settle with whether a Create of ctx stored its object; for a held object, at the end of its
// transaction.
func settled(ctx context.Context, settle func(stored bool), stored bool) {
	p, ok := ctx.Value(partKey{}).(part)
	if !ok {
		settle(stored)
		return
	}
	if p.settle = append(p.settle, settle); p.last || !stored {
		p.ended(stored)
	}
}

// join records the resource of a Create of ctx, if it is part of a transaction.
func join(ctx context.Context, resource schema.GroupResource) error {
	p, ok := ctx.Value(partKey{}).(part)
	if !ok {
		return nil
	}
	if slices.Contains(p.resources, resource) {
		return apierrors.NewInternalError(fmt.Errorf("a transaction cannot write two objects of %s", resource))
	}
	p.resources = append(p.resources, resource)
	return nil
}

// transactions is the etcd client of storages.
type transactions struct {
	etcdkubernetes.Interface
	kv    clientv3.KV
	ahead *readAhead
	sizes *sizes
	room  Room                       // nil if it is not known
	own   func(context.Context) bool // of room
	// fences is nil if no cluster of this store can be fenced.
	fences *fences
	*history
}

// List implements etcdkubernetes.Interface.
func (t transactions) List(ctx context.Context, prefix string, opts etcdkubernetes.ListOptions) (etcdkubernetes.ListResponse, error) {
	response, _, err := retry(ctx, 0, func(ctx context.Context) (etcdkubernetes.ListResponse, error) {
		if cluster, ok := logicalcluster.From(ctx); ok && cluster.Wildcard && opts.Limit > 0 {
			response, err := t.ahead.list(ctx, t.Interface, prefix, opts)
			if err == nil {
				err = fairqueue.From(ctx).Take(weight(response.Kvs))
			}
			return response, err
		}
		return t.sizes.list(ctx, t.Interface, prefix, opts)
	})
	return response, err
}

// Get implements etcdkubernetes.Interface.
func (t transactions) Get(ctx context.Context, key string, opts etcdkubernetes.GetOptions) (etcdkubernetes.GetResponse, error) {
	response, _, err := retry(ctx, 0, func(ctx context.Context) (etcdkubernetes.GetResponse, error) {
		response, err := t.Interface.Get(ctx, key, opts)
		if err == nil && response.KV != nil {
			err = fairqueue.From(ctx).Take(weightOf(response.KV.Value))
		}
		return response, err
	})
	return response, err
}

// OptimisticPut implements etcdkubernetes.Interface.
func (t transactions) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	t.sizes.written(key, len(value))
	defer t.sizes.changed(key)
	p, ok := ctx.Value(partKey{}).(part)
	if !ok || revision != 0 || p.last { // what is held until then does not wait for etcd
		defer fairqueue.From(ctx).Store(len(value))()
	}
	if !ok || revision != 0 { // changes of existing objects are not part of a transaction
		if exists, err := t.refusePut(ctx, key, value, revision); err != nil || exists != nil {
			return derefPut(exists), err
		}
		response, err := retryPut(ctx, t.Interface, key, value, revision, options)
		if err == nil && response.Succeeded {
			t.fences.wrote(ctx)
			t.wrote(uint64(response.Revision), int64(len(key)+len(value)))
		}
		return response, outOfSpace(err)
	}
	fence, err := t.fences.of(ctx, key)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	p.held = append(p.held, put{key, value, options, fence})
	if !p.last {
		return etcdkubernetes.PutResponse{Succeeded: true}, nil
	}
	if err := t.refuseHeld(ctx, p.held); err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	defer t.changed(p.held)
	response, err := retryCommit(ctx, t.kv, p.held, p.absent)
	if err == nil && response.Succeeded {
		t.fences.wrote(ctx)
		bytes := 0
		for _, h := range p.held {
			bytes += len(h.key) + len(h.value) + eventBytes
		}
		t.wrote(uint64(response.Revision), int64(bytes))
	}
	return response, outOfSpace(err)
}

// changed records the end of a write of several objects.
func (t transactions) changed(held []put) {
	for _, h := range held {
		t.sizes.changed(h.key)
	}
}

func derefPut(response *etcdkubernetes.PutResponse) etcdkubernetes.PutResponse {
	if response == nil {
		return etcdkubernetes.PutResponse{}
	}
	return *response
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (t transactions) OptimisticDelete(ctx context.Context, key string, revision int64,
	options etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	defer fairqueue.From(ctx).Store(0)()
	defer t.sizes.changed(key)
	if err := t.refuseWrite(); err != nil {
		return etcdkubernetes.DeleteResponse{}, err
	}
	response, err := retryDelete(ctx, t.Interface, key, revision, options)
	if err == nil && response.Succeeded {
		t.fences.wrote(ctx)
	}
	return response, err
}
