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
	// nextLists are how many lists have their next page made at a time, nextObjects how many objects such a page has at most, and
	// nextTime how long it waits to be asked for.
	nextLists, nextObjects, nextTime = 16, 1000, 10 * time.Second
	// nextBytes is how much memory the page before may have taken.
	nextBytes = 4 << 20
	// nextTimeout is how long it may take to be made.
	nextTimeout = 30 * time.Second
)

// nextPages are the pages that come next in lists of custom resources over all clusters: while a client reads a page, the server makes
// the next. Who has asked for a second page goes on.
type nextPages struct {
	mu    sync.Mutex
	pages map[pageKey]*nextPage
}

// pageKey says all that the content of a page depends on: its token contains the revision.
type pageKey struct {
	storage    *clusterStorage
	key, token string
	limit      int64
}

type nextPage struct {
	made  chan struct{}
	list  *unstructured.UnstructuredList // nil if it could not be made
	timer *time.Timer
}

func newNextPages() *nextPages { return &nextPages{pages: map[pageKey]*nextPage{}} }

// list reads a list of s; what selects its objects is part of opts.
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

// make makes a page. Nobody waits for it.
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

// take returns a page that is made or being made, nil if there is none.
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
