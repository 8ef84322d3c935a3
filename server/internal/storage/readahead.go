package storage

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
)

const (
	// aheadSize is the approximate number of bytes that are read ahead for a list, aheadLists limits such lists at a time, and
	// aheadTime how long the pages wait for their requests.
	aheadSize, aheadLists, aheadTime = 4 << 20, 16, 10 * time.Second
)

// readAhead holds the next pages of lists across all clusters that clients read page by page. For every page, etcd counts all
// remaining keys, which takes longer than reading the page: for 100,000 objects in pages of 500, it would count ten million
// keys.
type readAhead struct {
	mu    sync.Mutex
	rests map[place]rest
}

// place is the position at which a list continues.
type place struct {
	prefix, from string
	revision     int64
}

// rest is the remainder of a list.
type rest struct {
	read  []*mvccpb.KeyValue // the next objects
	count int64              // of all remaining objects
	size  int                // of an object
	timer *time.Timer        // drops it
}

func newReadAhead() *readAhead { return &readAhead{rests: map[place]rest{}} }

// list returns a page, and reads pages ahead if it is not the first.
func (a *readAhead) list(ctx context.Context, kv etcdkubernetes.Interface, prefix string,
	opts etcdkubernetes.ListOptions) (etcdkubernetes.ListResponse, error) {
	r := a.take(place{prefix, opts.Continue, opts.Revision})
	if int64(len(r.read)) < min(opts.Limit, r.count) || r.count == 0 {
		more := opts
		if r.size > 0 {
			more.Limit *= max(1, aheadSize/int64(r.size)/opts.Limit)
		}
		found, err := kv.List(ctx, prefix, more)
		if err != nil {
			return found, err
		}
		if opts.Revision == 0 {
			opts.Revision = found.Revision
		}
		r = rest{read: found.Kvs, count: found.Count, size: averageSize(found.Kvs)}
	}
	n := min(opts.Limit, int64(len(r.read)))
	page := etcdkubernetes.ListResponse{Kvs: r.read[:n:n], Count: r.count, Revision: opts.Revision}
	if n < r.count && n > 0 {
		next := place{prefix, string(page.Kvs[n-1].Key) + "\x00", opts.Revision}
		a.put(next, rest{read: r.read[n:], count: r.count - n, size: r.size})
	}
	return page, nil
}

func averageSize(kvs []*mvccpb.KeyValue) int {
	size := 1
	for _, kv := range kvs {
		size += len(kv.Value)
	}
	return max(1, size/max(1, len(kvs)))
}

// take removes and returns the known remainder of a list.
func (a *readAhead) take(at place) rest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.rests[at]
	if ok {
		r.timer.Stop()
		delete(a.rests, at)
	}
	return r
}

func (a *readAhead) put(at place, r rest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.rests[at]; ok || len(a.rests) == aheadLists {
		return
	}
	r.timer = time.AfterFunc(aheadTime, func() { a.take(at) })
	a.rests[at] = r
}
