package installation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// mortalRegistry is the registry of an operator that ends at a write.
type mortalRegistry struct {
	*registry
	operator *operatortest.Mortal
}

func (r mortalRegistry) Cordon(ctx context.Context, c kcpaccess.Credentials, name string, cordoned bool) error {
	return r.operator.Write("cordon "+name, fmt.Sprint(cordoned), func() error { return r.registry.Cordon(ctx, c, name, cordoned) })
}

func (r mortalRegistry) Remove(ctx context.Context, c kcpaccess.Credentials, name string, lose bool) error {
	return r.operator.Write("remove "+name, fmt.Sprint(lose), func() error { return r.registry.Remove(ctx, c, name, lose) })
}

func (r mortalRegistry) Move(ctx context.Context, c kcpaccess.Credentials, name string, labels map[string]string, cluster,
	destination string) error {
	return r.operator.Write("move "+name, fmt.Sprint(labels, cluster, destination),
		func() error { return r.registry.Move(ctx, c, name, labels, cluster, destination) })
}

func (r mortalRegistry) Cancel(ctx context.Context, c kcpaccess.Credentials, name string) error {
	return r.operator.Write("cancel "+name, "", func() error { return r.registry.Cancel(ctx, c, name) })
}

// mortalBinder binds roles for an operator that ends at a write.
func mortalBinder(bind kubeconfig.Binder, operator *operatortest.Mortal) kubeconfig.Binder {
	return func(ctx context.Context, c kcpaccess.Credentials, workspace string, roles kcpaccess.Roles) error {
		return operator.Write("bind "+workspace, fmt.Sprint(roles), func() error { return bind(ctx, c, workspace, roles) })
	}
}

// everything lists all objects.
func (w *world) everything(t *testing.T) []client.Object {
	t.Helper()
	var all []client.Object
	for _, list := range []client.ObjectList{
		&v1alpha1.CacheServerList{}, &v1alpha1.RootShardList{}, &v1alpha1.ShardList{}, &v1alpha1.VirtualWorkspaceList{}, &v1alpha1.FrontProxyList{},
		&v1alpha1.KubeconfigList{}, &v1alpha1.EtcdClusterList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.ServiceList{},
		&corev1.SecretList{}, &certmanager.IssuerList{}, &certmanager.CertificateList{}, &policyv1.PodDisruptionBudgetList{},
		&networkingv1.NetworkPolicyList{},
	} {
		if err := w.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// round lets everything act once: the operator, the garbage collector, cert-manager, the etcds, the pods, and kcp.
func (w *world) round(t *testing.T) {
	t.Helper()
	w.reconcile(t)
	w.revoke(t)
	w.collect(t)
	w.Certify(t)
	w.answer(t)
	w.run(t)
	w.registry.(*registry).advance()
	for len(w.Events.Events) > 0 {
		<-w.Events.Events
	}
}

// rest lets everything act until the operator writes nothing.
func (w *world) rest(t *testing.T) {
	t.Helper()
	quiet := 0
	for range 40 {
		w.Writes()
		w.round(t)
		if quiet++; w.Writes() > 0 {
			quiet = 0
		}
		if quiet == 2 {
			return
		}
	}
	t.Fatal("the operator writes in each of 40 rounds")
}

// revoke revokes the access of deleted Kubeconfigs.
func (w *world) revoke(t *testing.T) {
	t.Helper()
	secrets := &corev1.SecretList{}
	if err := w.List(t.Context(), secrets, client.HasLabels{"operator.kcp.io/kubeconfig"}); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		w.once(t, func(o operator) reconcile.Reconciler {
			return &kubeconfig.Revoker{Client: o.Client, Live: o.Live, Recorder: o.Recorder, Bind: o.bind}
		}, secrets.Items[i].Labels["operator.kcp.io/kubeconfig"])
	}
}

// collect deletes the objects without their owners.
func (w *world) collect(t *testing.T) {
	t.Helper()
	for deleted := true; deleted; {
		deleted = false
		all, alive := w.everything(t), map[metav1.OwnerReference]bool{}
		for _, object := range all {
			gvk, err := apiutil.GVKForObject(object, w.Scheme())
			if err != nil {
				t.Fatal(err)
			}
			alive[metav1.OwnerReference{Kind: gvk.Kind, Name: object.GetName(), UID: object.GetUID()}] = true
		}
		for _, object := range all {
			owners := object.GetOwnerReferences()
			if len(owners) == 0 || slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool {
				return alive[metav1.OwnerReference{Kind: o.Kind, Name: o.Name, UID: o.UID}]
			}) {
				continue
			}
			deleted = true
			if err := client.IgnoreNotFound(w.Delete(t.Context(), object)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answer makes each EtcdCluster available, as its reconciler does.
func (w *world) answer(t *testing.T) {
	t.Helper()
	list := &v1alpha1.EtcdClusterList{}
	if err := w.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		cluster := &list.Items[i]
		if meta.IsStatusConditionTrue(cluster.Status.Conditions, "Ready") {
			continue
		}
		key := operatortest.NewKey(t)
		authority := operatortest.Certificate(t, cluster.Name, key, key)
		trust := &corev1.Secret{Data: map[string][]byte{etcdcluster.TrustedClients: authority}}
		trust.Name = etcdcluster.TrustSecretName(cluster.Name)
		pair := &corev1.Secret{Data: map[string][]byte{"tls.crt": authority, "tls.key": []byte("key"), "ca.crt": authority}}
		pair.Name = etcdcluster.ClientSecretName(cluster.Name)
		for _, secret := range []*corev1.Secret{trust, pair} {
			secret.Namespace = operatortest.Namespace
			secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, v1alpha1.SchemeGroupVersion.WithKind("EtcdCluster"))}
			w.MustCreate(t, secret)
		}
		cluster.Status.Endpoints, cluster.Status.ClientSecretName = []string{etcdcluster.ClientURL(cluster)}, pair.Name
		cluster.Status.ObservedGeneration = cluster.Generation
		for _, name := range []string{"Available", "Ready"} {
			meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Reconciled",
				ObservedGeneration: cluster.Generation})
		}
		w.MustUpdateStatus(t, cluster)
	}
}

// run replaces the pod of each StatefulSet that does not have the current template. A pod of a shard that starts registers the shard.
func (w *world) run(t *testing.T) {
	t.Helper()
	sets := &appsv1.StatefulSetList{}
	if err := w.List(t.Context(), sets); err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		set, pod := &sets.Items[i], &corev1.Pod{}
		err := w.Get(t.Context(), operatortest.Key(set.Name+"-0"), pod)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		switch runs := err == nil; {
		case *set.Spec.Replicas == 0 && runs:
			if err := w.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		case *set.Spec.Replicas > 0 && !(runs && equality.Semantic.DeepEqual(pod.Spec, set.Spec.Template.Spec) &&
			equality.Semantic.DeepEqual(pod.Annotations, set.Spec.Template.Annotations)):
			w.start(t, set.Name)
			w.registry.(*registry).register(set)
		}
		if n := *set.Spec.Replicas; set.Status.ObservedGeneration != set.Generation || set.Status.ReadyReplicas != n {
			w.Roll(t, set.Name)
		}
	}
}

// register registers the shard of a StatefulSet, if it is that of a shard.
func (r *registry) register(set *appsv1.StatefulSet) {
	name := set.Labels["app.kubernetes.io/instance"]
	if _, known := r.shards[name]; !known && set.Name == name+"-shard-kcp" {
		r.shards[name] = kcpaccess.Registered{BaseURL: "https://" + set.Name + ".team.svc.cluster.local:6443", Responds: true,
			LogicalClusters: r.held[name]}
	}
}

// advance completes the migrations when all logical clusters of the shard west move, unless they stay.
func (r *registry) advance() {
	west := r.shards["west"]
	if len(r.migrations) == 0 || int64(len(r.migrations)) < west.LogicalClusters || len(r.stays) > 0 {
		return
	}
	for name, m := range r.migrations {
		m.Status.Phase = migrationv1alpha1.PhaseCompleted
		r.migrations[name] = m
		r.moved = append(r.moved, m.Spec.LogicalCluster+" to "+m.Spec.DestinationShard)
	}
	west.LogicalClusters = 0
	r.shards["west"] = west
}
