package mount

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/cancellation"
)

// connections ends the requests that are on their way through a mount, watches above all, when that leads somewhere else or
// nowhere. It knows the mounts that requests are on their way through, and no other.
type connections struct {
	workspaces informers.Lister[*tenancyv1alpha1.Workspace]
	open       cancellation.Requests[informers.Key] // by workspace
}

func newConnections(workspaces informers.Lister[*tenancyv1alpha1.Workspace]) *connections {
	c := &connections{workspaces: workspaces}
	workspaces.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*tenancyv1alpha1.Workspace)
		after, _ := obj.(*tenancyv1alpha1.Workspace)
		if before == nil || before.Spec.Mount == nil || (after != nil && leadsTo(after, before.Spec.URL)) {
			return
		}
		if key, err := informers.KeyOf(before); err == nil {
			c.open.End(key)
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
	ctx, done := c.open.Begin(r.Context(), t.workspace)
	// Whatever changes from here on ends the request.
	ws, err := c.workspaces.Get(t.workspace.Cluster, "", t.workspace.Name)
	return r.WithContext(ctx), done, err == nil && leadsTo(ws, t.url)
}
