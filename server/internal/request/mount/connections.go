package mount

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/request/cancellation"
)

// connections ends active requests through a mount, especially watches, when the URL of the mount changes or the mount ends. It keeps only
// mounts with active requests in memory.
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

// leadsTo reports whether a workspace is ready and mounted from a URL.
func leadsTo(ws *tenancyv1alpha1.Workspace, url string) bool {
	return ws.Spec.Mount != nil && ws.Spec.URL == url && ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
}

// follow returns a request that ends with its mount, and a function that the caller must call when the request has ended. It returns false
// if the mount has changed since the target was resolved.
func (c *connections) follow(r *http.Request, t target) (followed *http.Request, done func(), ok bool) {
	c.workspaces.WaitForChanges(r.Context(), fairqueue.From(r.Context()).Stand)
	ctx, done := c.open.Begin(r.Context(), t.workspace)
	// Changes after this line end the request.
	ws, err := c.workspaces.Get(t.workspace.Cluster, "", t.workspace.Name)
	return r.WithContext(ctx), done, err == nil && leadsTo(ws, t.url)
}
