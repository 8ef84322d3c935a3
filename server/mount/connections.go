package mount

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/informers"
)

// connections ends the requests that are on their way through a mount, watches above all, when that leads somewhere else or
// nowhere. It knows the mounts that requests are on their way through, and no other.
type connections struct {
	workspaces informers.Lister[*tenancyv1alpha1.Workspace]

	mu   sync.Mutex
	open map[informers.Key]map[*connection]struct{}
}

type connection struct{ end context.CancelFunc }

func newConnections(workspaces informers.Lister[*tenancyv1alpha1.Workspace]) *connections {
	c := &connections{workspaces: workspaces, open: map[informers.Key]map[*connection]struct{}{}}
	workspaces.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*tenancyv1alpha1.Workspace)
		after, _ := obj.(*tenancyv1alpha1.Workspace)
		if before == nil || before.Spec.Mount == nil || (after != nil && leadsTo(after, before.Spec.URL)) {
			return
		}
		if key, err := informers.KeyOf(before); err == nil {
			c.endAll(key)
		}
	})
	return c
}

// leadsTo tells whether a workspace is ready and mounted from a URL.
func leadsTo(ws *tenancyv1alpha1.Workspace, url string) bool {
	return ws.Spec.Mount != nil && ws.Spec.URL == url && ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
}

// follow returns a request that ends with its mount, and what must be called when it has ended. It is false if the mount
// has changed since the request was led there.
func (c *connections) follow(r *http.Request, t target) (followed *http.Request, done func(), ok bool) {
	ctx, end := context.WithCancel(r.Context())
	opened := &connection{end}
	c.mu.Lock()
	if c.open[t.workspace] == nil {
		c.open[t.workspace] = map[*connection]struct{}{}
	}
	c.open[t.workspace][opened] = struct{}{}
	c.mu.Unlock()
	done = func() {
		end()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open[t.workspace], opened)
		if len(c.open[t.workspace]) == 0 {
			delete(c.open, t.workspace)
		}
	}
	// Whatever changes from here on ends the request.
	ws, err := c.workspaces.Get(t.workspace.Cluster, "", t.workspace.Name)
	return r.WithContext(ctx), done, err == nil && leadsTo(ws, t.url)
}

func (c *connections) endAll(key informers.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for opened := range c.open[key] {
		opened.end()
	}
}
