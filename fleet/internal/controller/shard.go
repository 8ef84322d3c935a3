package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/loop"
)

// resource is a resource that runs on clusters.
type resource struct {
	GVR  schema.GroupVersionResource
	Kind string
}

// shards are the running managers by endpoint.
type shards struct {
	mu      sync.Mutex // guards running
	running map[string]*shard
}

func newShards() *shards { return &shards{running: map[string]*shard{}} }

func (s *shards) at(endpoint string) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[endpoint]
}

func (s *shards) set(endpoint string, value *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		delete(s.running, endpoint)
		return
	}
	s.running[endpoint] = value
}

func (s *shards) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// objects are the objects of the workspaces at one endpoint. Managers implement it.
type objects interface {
	GetConfig() *rest.Config
	GetCache() cache.Cache
	// GetClient returns a client that reads from the cache, and GetAPIReader one that reads from the server.
	GetClient() client.Client
	GetAPIReader() client.Reader
}

// shard has the objects of the workspaces at one endpoint.
type shard struct {
	fleet     *fleet
	manager   objects
	resources []resource
}

func (s *shard) endpoint() string {
	return strings.TrimSuffix(s.manager.GetConfig().Host, "/clusters/*")
}

// Start implements manager.Runnable: it keeps the index up to date until ctx ends.
func (s *shard) Start(ctx context.Context) error {
	var synced []toolscache.InformerSynced
	for _, r := range s.resources {
		informer, err := s.manager.GetCache().GetInformer(ctx, r.empty())
		if err != nil {
			return fmt.Errorf("watching %s: %w", r.GVR.GroupResource(), err)
		}
		changed := func(u *unstructured.Unstructured, deleted bool) { s.changed(ctx, r, u, deleted) }
		registration, err := informer.AddEventHandler(loop.Handler(changed))
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	for _, o := range []client.Object{&corev1.Namespace{}, &v1alpha1.Placement{}} {
		informer, err := s.manager.GetCache().GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watching %T: %w", o, err)
		}
		registration, err := informer.AddEventHandler(loop.Handler(func(o client.Object, _ bool) { s.scheduleFor(ctx, o) }))
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	s.fleet.shards.set(s.endpoint(), s)
	s.fleet.index.SetSynced(s.endpoint(), true)
	defer s.fleet.shards.set(s.endpoint(), nil)
	defer s.fleet.index.SetSynced(s.endpoint(), false)
	s.scheduleAll(ctx)
	for _, n := range s.fleet.index.Namespaces() { // agents may have reported while no status could be written
		if n.Endpoint == s.endpoint() {
			s.fleet.writeStatuses(n)
		}
	}
	<-ctx.Done()
	return nil
}

func (r resource) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.GVR.GroupVersion().WithKind(r.Kind))
	return u
}

// changed updates the index. The fleet forgets a deleted object only after it asked the server.
func (s *shard) changed(ctx context.Context, r resource, u *unstructured.Unstructured, deleted bool) {
	n := feed.Namespace{Endpoint: s.endpoint(), Workspace: workspaces.ClusterOf(u), Name: u.GetNamespace()}
	key := feed.Key{Resource: r.GVR, Name: u.GetName()}
	if deleted {
		live := r.empty()
		err := s.manager.GetAPIReader().Get(workspaces.In(ctx, n.Workspace), client.ObjectKeyFromObject(u), live)
		switch {
		case err == nil:
			return // it exists again, and its event follows
		case !apierrors.IsNotFound(err):
			ctrl.Log.Info("Keeping an object whose deletion is not confirmed", "object", fmt.Sprint(n, key.Name), "error", err.Error())
			return
		}
		u = nil
	}
	decisive := s.fleet.index.SetObject(n, key, u)
	s.fleet.reported.Add(object{n, key})
	if decisive || s.fleet.problems.has(subject{n.Endpoint, n.Workspace, scheduled.condition}, n.Name+"/") {
		s.fleet.queue.Add(n)
	}
}

// scheduleFor enqueues the namespaces that a namespace or placement affects.
func (s *shard) scheduleFor(ctx context.Context, o client.Object) {
	workspace := workspaces.ClusterOf(o)
	if namespace, ok := o.(*corev1.Namespace); ok {
		s.fleet.queue.Add(feed.Namespace{Endpoint: s.endpoint(), Workspace: workspace, Name: namespace.Name})
		return
	}
	s.scheduleIn(workspaces.In(ctx, workspace))
}

// scheduleIn enqueues the namespaces of the workspace in the context.
func (s *shard) scheduleIn(ctx context.Context) {
	list := &corev1.NamespaceList{}
	if err := s.manager.GetClient().List(ctx, list); err != nil {
		ctrl.Log.Error(err, "Listing namespaces failed")
		return
	}
	for i := range list.Items {
		s.fleet.queue.Add(feed.Namespace{Endpoint: s.endpoint(), Workspace: workspaces.ClusterOf(&list.Items[i]), Name: list.Items[i].Name})
	}
}

// scheduleAll enqueues the namespaces of all workspaces with a placement.
func (s *shard) scheduleAll(ctx context.Context) {
	list := &v1alpha1.PlacementList{}
	if err := s.manager.GetClient().List(workspaces.Everywhere(ctx), list); err != nil {
		ctrl.Log.Error(err, "Listing placements failed")
		return
	}
	seen := map[string]bool{}
	for i := range list.Items {
		if workspace := workspaces.ClusterOf(&list.Items[i]); !seen[workspace] {
			seen[workspace] = true
			s.scheduleIn(workspaces.In(ctx, workspace))
		}
	}
	for _, n := range s.fleet.index.Namespaces() {
		if n.Endpoint == s.endpoint() {
			s.fleet.queue.Add(n)
		}
	}
}
