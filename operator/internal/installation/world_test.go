package installation_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/cacheserver"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/frontproxy"
	"github.com/kcplane/kcp/operator/internal/furthershard"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/rootshard"
	"github.com/kcplane/kcp/operator/internal/virtualworkspace"
)

// TestMain collects garbage less often. The tests keep little memory, and encode many objects.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

const image = "registry.example.com/kcp:v1.0.0"

// world is a cluster with the reconcilers of all kinds.
type world struct {
	*operatortest.Cluster
	environment component.Environment
	// registry has the Shard objects in kcp. Nil: they are not checked.
	registry furthershard.Registry
	// bound are the roles that Kubeconfigs have, by the workspace and the identity.
	bound map[string]kcpaccess.Roles
	// deaths are the writes at which operators end. Nil: they do not end.
	deaths *operatortest.Deaths
}

func newWorld(objects ...client.Object) *world {
	c := operatortest.New(objects...)
	return &world{Cluster: c, bound: map[string]kcpaccess.Roles{},
		environment: component.Environment{Client: c, Live: c, Recorder: c.Events, DefaultImage: image}}
}

// operator is what one operator writes to.
type operator struct {
	component.Environment
	registry furthershard.Registry
	bind     kubeconfig.Binder
}

// kinds are the reconcilers in the order in which a world calls them.
var kinds = []struct {
	list       client.ObjectList
	reconciler func(operator) reconcile.Reconciler
}{
	{&v1alpha1.CacheServerList{}, func(o operator) reconcile.Reconciler { return &cacheserver.Reconciler{Environment: o.Environment} }},
	{&v1alpha1.RootShardList{}, func(o operator) reconcile.Reconciler { return &rootshard.Reconciler{Environment: o.Environment} }},
	{&v1alpha1.ShardList{}, func(o operator) reconcile.Reconciler {
		return &furthershard.Reconciler{Environment: o.Environment, Registry: o.registry}
	}},
	{&v1alpha1.VirtualWorkspaceList{}, func(o operator) reconcile.Reconciler {
		return &virtualworkspace.Reconciler{Environment: o.Environment}
	}},
	{&v1alpha1.FrontProxyList{}, func(o operator) reconcile.Reconciler { return &frontproxy.Reconciler{Environment: o.Environment} }},
	{&v1alpha1.KubeconfigList{}, func(o operator) reconcile.Reconciler {
		return &kubeconfig.Reconciler{Client: o.Client, Live: o.Live, Recorder: o.Recorder, Bind: o.bind}
	}},
}

// reconcile reconciles all objects once.
func (w *world) reconcile(t *testing.T) {
	t.Helper()
	for _, k := range kinds {
		list := k.list.DeepCopyObject().(client.ObjectList)
		if err := w.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			w.once(t, k.reconciler, object.(client.Object).GetName())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// once reconciles an object once. If operators end at their writes, other ones continue until one of them does not end.
func (w *world) once(t *testing.T, reconciler func(operator) reconcile.Reconciler, name string) {
	t.Helper()
	if w.deaths == nil {
		w.Reconcile(t, reconciler(operator{w.environment, w.registry, w.bind}), name)
		return
	}
	for range 1000 {
		mortal := w.deaths.Next()
		o := operator{w.environment, nil, mortalBinder(w.bind, mortal)}
		o.Client = mortal.Client(w.Cluster)
		if w.registry != nil {
			o.registry = mortalRegistry{w.registry.(*registry), mortal}
		}
		result, err := reconciler(o).Reconcile(t.Context(), ctrl.Request{NamespacedName: operatortest.Key(name)})
		switch ended := mortal.Ended(); {
		case ended == "" && err != nil:
			t.Fatal(err)
		case ended == "":
			return
		case err == nil && result.RequeueAfter == 0:
			t.Fatalf("%s: the error of a write is lost: %s", name, ended)
		}
	}
	t.Fatalf("1000 operators begin to write to objects of %s", name)
}

// bind binds roles in kcp.
func (w *world) bind(_ context.Context, c kcpaccess.Credentials, workspace string, roles kcpaccess.Roles) error {
	key := workspace + " " + roles.ID
	if w.bound[key] = roles; len(roles.ClusterRoles) == 0 {
		delete(w.bound, key)
	}
	return nil
}

// settle reconciles all components, issues certificates and starts pods, as often as one component can wait for another.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 4 {
		w.reconcile(t)
		w.Certify(t)
		sets := &appsv1.StatefulSetList{}
		if err := w.List(t.Context(), sets); err != nil {
			t.Fatal(err)
		}
		for i := range sets.Items {
			w.Roll(t, sets.Items[i].Name)
		}
	}
	w.reconcile(t)
}

// named names an object. Its UID has the kind, because objects of several kinds may have the same name.
func named[T client.Object](object T, name string) T {
	object.SetName(name)
	object.SetUID(types.UID(fmt.Sprintf("uid-%T-%s", object, name)))
	return object
}

func root(name string) *v1alpha1.RootShard {
	rs := named(&v1alpha1.RootShard{}, name)
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	rs.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{"https://etcd-" + v1alpha1.EtcdEndpoint(name) + ":2379"}
	return rs
}

func of(name string) v1alpha1.RootShardConfig {
	return v1alpha1.RootShardConfig{Reference: &v1alpha1.LocalReference{Name: name}}
}

func further(name string) *v1alpha1.Shard {
	s := named(&v1alpha1.Shard{}, name)
	s.Spec.RootShard = of("kcp")
	s.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{"https://etcd-" + v1alpha1.EtcdEndpoint(name) + ":2379"}
	return s
}

func proxy(name string) *v1alpha1.FrontProxy {
	f := named(&v1alpha1.FrontProxy{}, name)
	f.Spec.RootShard = of("kcp")
	return f
}

func cache(name string) *v1alpha1.CacheServer { return named(&v1alpha1.CacheServer{}, name) }

// installation returns the objects of an installation with all kinds.
func installation() []client.Object {
	rs := root("kcp")
	rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "cache"}}
	return []client.Object{cache("cache"), rs, further("east"), further("west"), proxy("public")}
}

// expect compares a condition of an object; message is a part of its message.
func (w *world) expect(t *testing.T, object client.Object, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	operatortest.Read(t, w.Cluster, object.GetName(), object)
	c := meta.FindStatusCondition(operatortest.Conditions(t, object), name)
	if c == nil || c.Status != status || reason != "" && c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("%T %s: %s: got %+v, want %s %s with %q", object, object.GetName(), name, c, status, reason, message)
	}
}

// args returns the command line of a component.
func (w *world) args(t *testing.T, workload string) string {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, workload, &appsv1.StatefulSet{})
	return fmt.Sprint(set.Spec.Template.Spec.Containers[0].Command, set.Spec.Template.Spec.Containers[0].Args)
}

func typeOf(object client.Object) string { return fmt.Sprintf("%T", object) }
