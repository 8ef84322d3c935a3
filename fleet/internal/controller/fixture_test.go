package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/loop"
)

const endpoint = "https://shard/services/apiexport/p/fleet"

// workspace is one workspace in memory. It counts the writes to it.
type workspace struct {
	client.Client
	writes atomic.Int64
}

func (w *workspace) GetConfig() *rest.Config     { return &rest.Config{Host: endpoint + "/clusters/*"} }
func (w *workspace) GetCache() cache.Cache       { return nil }
func (w *workspace) GetClient() client.Client    { return w.Client }
func (w *workspace) GetAPIReader() client.Reader { return w.Client }
func (w *workspace) in(name string) feed.Namespace {
	return feed.Namespace{Endpoint: endpoint, Workspace: "w", Name: name}
}

// installed is a controller with one workspace, all in memory.
type installed struct {
	*fleet
	w     *workspace
	shard *shard
}

// install returns a controller whose provider and workspace have some objects.
func install(t testing.TB, provider, user []client.Object) *installed {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	statuses := []client.Object{&v1alpha1.Cluster{}, &v1alpha1.Assignment{}, &v1alpha1.Placement{}}
	w := &workspace{}
	count := func() { w.writes.Add(1) }
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(user...).WithStatusSubresource(statuses...).WithInterceptorFuncs(
		interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				count()
				return c.Create(ctx, o, options...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
				count()
				return c.Update(ctx, o, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				count()
				return c.Patch(ctx, o, p, options...)
			},
		}).Build()
	f := &fleet{
		provider: fake.NewClientBuilder().WithScheme(scheme).WithObjects(provider...).WithStatusSubresource(statuses...).Build(),
		shards:   newShards(), moves: newTurns(60), problems: newProblems(), sessions: &sessions{}, options: Options{Lost: time.Minute, MovesPerMinute: 60},
		queue: loop.NewQueue[feed.Namespace](), reported: loop.NewQueue[object](),
	}
	f.index = feed.NewIndex(1, nil)
	f.index.SetReady()
	s := &shard{fleet: f, manager: w}
	f.shards.set(endpoint, s)
	f.index.SetSynced(endpoint, true)
	return &installed{f, w, s}
}

// follow copies the Assignments of the provider to the index, as the informer does.
func (i *installed) follow(t testing.TB) []v1alpha1.Assignment {
	t.Helper()
	list := &v1alpha1.AssignmentList{}
	if err := i.provider.List(context.Background(), list); err != nil {
		t.Fatal(err)
	}
	for k := range list.Items {
		i.index.SetAssignment(&list.Items[k])
	}
	return list.Items
}

// decide decides on a namespace, and returns the clusters that it is assigned to, with the phase or "draining".
func (i *installed) decide(t *testing.T, name string) map[string]string {
	t.Helper()
	if _, err := i.schedule(t.Context(), i.w.in(name)); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, a := range i.follow(t) {
		if a.Spec.Namespace == name {
			found[a.Spec.Cluster] = string(a.Status.Phase)
			if a.Spec.Draining {
				found[a.Spec.Cluster] = "draining"
			}
		}
	}
	return found
}

// agentReports sets the phase of the Assignment of a namespace on a cluster.
func (i *installed) agentReports(t *testing.T, name, cluster string, phase v1alpha1.AssignmentPhase) {
	t.Helper()
	a := &v1alpha1.Assignment{}
	if err := i.provider.Get(t.Context(), client.ObjectKey{Name: feed.AssignmentName("w", name, cluster)}, a); err != nil {
		t.Fatal(err)
	}
	a.Status = v1alpha1.AssignmentStatus{Phase: phase, ObservedGeneration: a.Generation}
	if err := i.provider.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	i.follow(t)
}

// change changes a Cluster.
func (i *installed) change(t *testing.T, name string, change func(*v1alpha1.Cluster)) {
	t.Helper()
	c := &v1alpha1.Cluster{}
	if err := i.provider.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	change(c)
	if err := i.provider.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func readyCluster(name string) client.Object {
	return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}}}
}

func userNamespace(name string) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{workspaces.ClusterAnnotation: "w"}}}
}

func anywhere() client.Object {
	return &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "all", Annotations: map[string]string{workspaces.ClusterAnnotation: "w"}}}
}
