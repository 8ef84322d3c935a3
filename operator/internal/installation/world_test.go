package installation_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/cacheserver"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/frontproxy"
	"github.com/kcplane/kcp/operator/internal/furthershard"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/rootshard"
	"github.com/kcplane/kcp/operator/internal/virtualworkspace"
)

const image = "registry.example.com/kcp:v1.0.0"

// world is a cluster with the reconcilers of all components.
type world struct {
	*operatortest.Cluster
	environment component.Environment
	// registry has the Shard objects in kcp. Nil: they are not checked.
	registry furthershard.Registry
}

func newWorld(objects ...client.Object) *world {
	c := operatortest.New(objects...)
	return &world{Cluster: c, environment: component.Environment{Client: c, Live: c, Recorder: c.Events, DefaultImage: image}}
}

// reconcile reconciles all components once.
func (w *world) reconcile(t *testing.T) {
	t.Helper()
	for _, k := range []struct {
		list       client.ObjectList
		reconciler reconcile.Reconciler
	}{
		{&v1alpha1.CacheServerList{}, &cacheserver.Reconciler{Environment: w.environment}},
		{&v1alpha1.RootShardList{}, &rootshard.Reconciler{Environment: w.environment}},
		{&v1alpha1.ShardList{}, &furthershard.Reconciler{Environment: w.environment, Registry: w.registry}},
		{&v1alpha1.VirtualWorkspaceList{}, &virtualworkspace.Reconciler{Environment: w.environment}},
		{&v1alpha1.FrontProxyList{}, &frontproxy.Reconciler{Environment: w.environment}},
	} {
		if err := w.List(t.Context(), k.list); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(k.list)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			w.Reconcile(t, k.reconciler, object.(client.Object).GetName())
		}
	}
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
