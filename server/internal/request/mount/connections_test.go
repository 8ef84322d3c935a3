package mount

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var mountKey = informers.Key{Cluster: "root", Name: "mounted"}

// mountedFrom returns a ready workspace.
func mountedFrom(url string) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: mountKey.Name, ResourceVersion: "1", Annotations: map[string]string{logicalcluster.AnnotationKey: string(mountKey.Cluster)},
	}}
	ws.Spec.Mount, ws.Spec.URL = &tenancyv1alpha1.Mount{}, url
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	return ws
}

func listing(lw *cache.ListWatch) informers.Lister[*tenancyv1alpha1.Workspace] {
	resource := tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	return informers.Lister[*tenancyv1alpha1.Workspace]{Informer: informers.New(resource, &tenancyv1alpha1.Workspace{}, lw, nil)}
}

// workspaces returns an informer that does not run.
func workspaces() informers.Lister[*tenancyv1alpha1.Workspace] { return listing(&cache.ListWatch{}) }

func TestRequestsEndWithTheirMount(t *testing.T) {
	moved, unavailable := mountedFrom("https://b"), mountedFrom("https://a")
	unavailable.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable
	labelled := mountedFrom("https://a")
	labelled.Labels = map[string]string{"a": "b"}
	for name, test := range map[string]struct {
		change func(*watch.FakeWatcher)
		ends   bool
	}{
		"moved":       {func(w *watch.FakeWatcher) { w.Modify(moved.DeepCopy()) }, true},
		"unavailable": {func(w *watch.FakeWatcher) { w.Modify(unavailable.DeepCopy()) }, true},
		"deleted":     {func(w *watch.FakeWatcher) { w.Delete(mountedFrom("https://a")) }, true},
		"labelled":    {func(w *watch.FakeWatcher) { w.Modify(labelled.DeepCopy()) }, false},
	} {
		events := watch.NewFake()
		lister := listing(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &tenancyv1alpha1.WorkspaceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []tenancyv1alpha1.Workspace{*mountedFrom("https://a")}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
		})
		c := newConnections(lister)
		ctx, stop := context.WithCancel(t.Context())
		seen := make(chan struct{}, 10)
		lister.AddHandler(func(_, _ runtime.Object) { seen <- struct{}{} })
		go lister.Run(ctx)
		<-lister.Synced()
		<-seen
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		followed, done, ok := c.follow(r, target{workspace: mountKey, url: "https://a"})
		if !ok || followed.Context().Err() != nil || c.open.Len() != 1 {
			t.Fatalf("%s: it does not begin", name)
		}
		test.change(events)
		select {
		case <-seen:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the change was not seen", name)
		}
		if ended := followed.Context().Err() != nil; ended != test.ends {
			t.Errorf("%s: the request has ended: %t", name, ended)
		}
		done()
		if _, again, ok := c.follow(r, target{workspace: mountKey, url: "https://a"}); ok == test.ends {
			t.Errorf("%s: another request begins: %t", name, ok)
		} else {
			again()
		}
		if n := c.open.Len(); n != 0 {
			t.Errorf("%s: %d mounts are remembered", name, n)
		}
		stop()
	}
}
