package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
)

// numbered is an etcd that holds n keys of a size at revision 7, and counts how often it is read.
type numbered struct {
	etcdkubernetes.Interface
	n, size int
	reads   int
	most    int // that were read at once
}

func (e *numbered) List(_ context.Context, prefix string, opts etcdkubernetes.ListOptions) (etcdkubernetes.ListResponse, error) {
	if opts.Revision != 0 && opts.Revision != 7 {
		return etcdkubernetes.ListResponse{}, errors.New("compacted")
	}
	e.reads++
	found := etcdkubernetes.ListResponse{Revision: 9}
	if opts.Revision == 0 {
		found.Revision = 7
	}
	for i := range e.n {
		key := fmt.Sprintf("%s%06d", prefix, i)
		if key < opts.Continue {
			continue
		}
		if found.Count++; opts.Limit == 0 || found.Count <= opts.Limit {
			found.Kvs = append(found.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(strings.Repeat("x", e.size)), ModRevision: int64(i)})
		}
	}
	e.most = max(e.most, len(found.Kvs))
	return found, nil
}

// pages returns the keys of a list in pages of limit; each page equals the response of etcd.
func pages(t *testing.T, a *readAhead, e *numbered, limit int64) []string {
	t.Helper()
	var keys []string
	opts := etcdkubernetes.ListOptions{Limit: limit}
	for {
		page, err := a.list(t.Context(), e, "/p/", opts)
		if err != nil {
			t.Fatal(err)
		}
		if left := int64(e.n - len(keys)); page.Count != left || int64(len(page.Kvs)) != min(limit, left) || page.Revision != 7 {
			t.Fatalf("a page of %d, of %d that are left at %d, after %d of %d", len(page.Kvs), page.Count, page.Revision, len(keys), e.n)
		}
		for i, kv := range page.Kvs {
			keys = append(keys, string(kv.Key))
			page.Kvs[i] = nil // as upstream does
		}
		if len(keys) == e.n {
			return keys
		}
		opts.Revision, opts.Continue = 7, keys[len(keys)-1]+"\x00"
	}
}

func TestPagesReadAheadAreThePagesOfEtcd(t *testing.T) {
	for _, n := range []int{0, 1, 499, 500, 501, 1000, 12_345} {
		for _, size := range []int{1, 1000, 100_000} {
			a, e := newReadAhead(), &numbered{n: n, size: size}
			if size > 1000 {
				e.n = min(n, 600)
			}
			keys := pages(t, a, e, 500)
			if !slices.IsSorted(keys) || len(slices.Compact(keys)) != e.n {
				t.Errorf("%d keys of %d bytes: %d are listed", e.n, size, len(keys))
			}
			if len(a.rests) > 0 {
				t.Errorf("%d keys of %d bytes: something is left of a list that has ended", n, size)
			}
			if size*e.most > 2*aheadSize && e.most > 500 {
				t.Errorf("%d keys of %d bytes were read at once", e.most, size)
			}
			if wanted := 3 + n*size/aheadSize; size == 1000 && e.reads > wanted {
				t.Errorf("%d keys of %d bytes took %d reads, want %d", n, size, e.reads, wanted)
			}
		}
	}
}

func TestAbandonedListsAreLimited(t *testing.T) {
	a, e := newReadAhead(), &numbered{n: 1000, size: 1000}
	for i := range 3 * aheadLists {
		prefix := fmt.Sprintf("/%d/", i)
		if _, err := a.list(t.Context(), e, prefix, etcdkubernetes.ListOptions{Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.rests) != aheadLists {
		t.Errorf("%d lists are kept, want %d", len(a.rests), aheadLists)
	}
	for at := range a.rests {
		a.take(at)
	}
	if keys := pages(t, a, e, 10); len(keys) != 1000 {
		t.Errorf("%d keys are listed", len(keys))
	}
}

func TestTwoReadersOfTheSameListGetAllOfIt(t *testing.T) {
	a, e := newReadAhead(), &numbered{n: 5000, size: 10}
	opts := [2]etcdkubernetes.ListOptions{{Limit: 500}, {Limit: 500}}
	for step := range 10 {
		for i := range opts {
			page, err := a.list(t.Context(), e, "/p/", opts[i])
			if err != nil || len(page.Kvs) != 500 {
				t.Fatalf("step %d: %d keys, %v", step, len(page.Kvs), err)
			}
			if want := fmt.Sprintf("/p/%06d", step*500); string(page.Kvs[0].Key) != want {
				t.Fatalf("step %d begins with %s", step, page.Kvs[0].Key)
			}
			opts[i].Revision, opts[i].Continue = 7, string(page.Kvs[499].Key)+"\x00"
		}
	}
}
