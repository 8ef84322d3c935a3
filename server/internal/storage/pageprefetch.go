package storage

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// nextLists limits the lists whose next page is prefetched at a time, nextObjects the objects of such a page, and nextTime
	// how long it waits for its request.
	nextLists, nextObjects, nextTime = 16, 1000, 10 * time.Second
	// nextBytes limits the memory of the previous page.
	nextBytes = 4 << 20
	// nextTimeout limits the time to prefetch a page.
	nextTimeout = 30 * time.Second
)

// nextPages are the prefetched pages of lists of custom resources across all clusters: while a client reads a page, the server
// prepares the next one. A client that has requested a second page is expected to continue.
type nextPages struct {
	mu    sync.Mutex
	pages map[pageKey]*nextPage
}

// pageKey contains everything on which the content of a page depends: its token contains the revision.
type pageKey struct {
	storage    *clusterStorage
	key, token string
	limit      int64
}

type nextPage struct {
	made  chan struct{}
	list  *unstructured.UnstructuredList // nil if the prefetch failed
	timer *time.Timer
}

func newNextPages() *nextPages { return &nextPages{pages: map[pageKey]*nextPage{}} }

// list reads a list of s; opts contains the selection of its objects.
func (n *nextPages) list(ctx context.Context, s *clusterStorage, key string, opts storage.ListOptions,
	list *unstructured.UnstructuredList) error {
	at := pageKey{s, key, opts.Predicate.Continue, opts.Predicate.Limit}
	if at.token == "" || at.limit > nextObjects {
		return readList(ctx, s, key, opts, list)
	}
	empty := list.DeepCopy()
	if page := n.take(ctx, at); page != nil {
		list.Object, list.Items = page.Object, page.Items
	} else if err := readList(ctx, s, key, opts, list); err != nil {
		return err
	}
	if at.token = list.GetContinue(); at.token != "" && fairqueue.From(ctx).Taken() <= nextBytes {
		opts.Predicate.Continue = at.token
		n.make(at, opts, empty)
	}
	return nil
}

// make prefetches a page in the background.
func (n *nextPages) make(at pageKey, opts storage.ListOptions, list *unstructured.UnstructuredList) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.pages[at]; ok || len(n.pages) == nextLists {
		return
	}
	page := &nextPage{made: make(chan struct{})}
	page.timer = time.AfterFunc(nextTime, func() { n.forget(at) })
	n.pages[at] = page
	go func() {
		defer close(page.made)
		ctx, cancel := context.WithTimeout(logicalcluster.WithWildcard(context.Background()), nextTimeout)
		defer cancel()
		if err := readList(ctx, at.storage, at.key, opts, list); err == nil {
			page.list = list
		}
	}()
}

// take returns a page that is prefetched or being prefetched, or nil.
func (n *nextPages) take(ctx context.Context, at pageKey) *unstructured.UnstructuredList {
	page := n.forget(at)
	if page == nil {
		return nil
	}
	page.timer.Stop()
	select {
	case <-page.made:
		return page.list
	case <-ctx.Done():
		return nil
	}
}

func (n *nextPages) forget(at pageKey) *nextPage {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.pages[at]
	delete(n.pages, at)
	return page
}
