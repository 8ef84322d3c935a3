package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/rootshard"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// These tests are for known defects of other operators of kcp. D… are their numbers in the list of defects; tests that need no API server
// are beside the code.

// installation is a RootShard that the test reconciles step by step at the API server.
type installation struct {
	*operatortest.Cluster                       // as an administrator
	operator              *operatortest.Cluster // with the operator's role
	reconciler            *rootshard.Reconciler
	name                  string
}

func install(t *testing.T, rs *v1alpha1.RootShard) *installation {
	t.Helper()
	i := &installation{Cluster: cluster(t, host), operator: cluster(t, asOperator()), name: rs.Name}
	i.reconciler = &rootshard.Reconciler{Environment: component.Environment{Client: i.operator, Live: i.operator, Recorder: i.operator.Events,
		DefaultImage: image, Namespace: "kcp-operator"}}
	i.MustCreate(t, rs)
	return i
}

func (i *installation) reconcile(t *testing.T) *v1alpha1.RootShard {
	t.Helper()
	i.operator.Reconcile(t, i.reconciler, i.name)
	return operatortest.Read(t, i.Cluster, i.name, &v1alpha1.RootShard{})
}

// settle simulates all steps until the pods run.
func (i *installation) settle(t *testing.T) *v1alpha1.RootShard {
	t.Helper()
	i.reconcile(t)
	i.Issue(t)
	i.reconcile(t)
	i.Roll(t, i.name+"-kcp")
	rs := i.reconcile(t)
	ready(t, rs.Status.Conditions)
	return rs
}

// access simulates all steps for a Kubeconfig.
func (i *installation) access(t *testing.T, k *v1alpha1.Kubeconfig) {
	t.Helper()
	i.MustCreate(t, k)
	r := &kubeconfig.Reconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Bind: kcpaccess.Bind}
	i.operator.Reconcile(t, r, k.Name)
	i.Issue(t)
	i.operator.Reconcile(t, r, k.Name)
	operatortest.Read(t, i.Cluster, k.Name, k)
}

func (i *installation) set(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	return operatortest.Read(t, i.Cluster, i.name+"-kcp", &appsv1.StatefulSet{})
}

// change updates an object as an administrator.
func change[T client.Object](t *testing.T, c *operatortest.Cluster, name string, object T, change func(T)) T {
	t.Helper()
	write(t, c, name, object, change, func() error { return c.Update(t.Context(), object) })
	return object
}

// changeStatus updates the status of an object as an administrator.
func changeStatus[T client.Object](t *testing.T, c *operatortest.Cluster, name string, object T, change func(T)) {
	t.Helper()
	write(t, c, name, object, change, func() error { return c.Status().Update(t.Context(), object) })
}

func write[T client.Object](t *testing.T, c *operatortest.Cluster, name string, object T, change func(T), update func() error) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // an operator may run
		operatortest.Read(t, c, name, object)
		change(object)
		return update()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// D1: kubectl apply writes the whole definition to an annotation of at most 256 KiB.
func TestDefinitionsCanBeAppliedByClients(t *testing.T) {
	kubectl := kcptest.CommandAt(t, "kubectl", newGateFor(t, host).kubeconfig)
	for range 2 {
		kubectl.Run(t, "apply", "--filename="+filepath.Join(root, "config/crd/bases"))
	}
}

func etcdNamed(name string) *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
}

// beginEtcd creates an EtcdCluster and the objects that exist before its first member.
func beginEtcd(t *testing.T, i *installation, etcd *v1alpha1.EtcdCluster) {
	t.Helper()
	i.MustCreate(t, etcd)
	r := &etcdcluster.Reconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Now: time.Now, Version: etcdcluster.DefaultVersion,
		Repository: etcdcluster.DefaultRepository}
	for range 2 {
		i.operator.Reconcile(t, r, etcd.Name)
		i.Issue(t)
	}
	operatortest.Read(t, i.Cluster, etcd.Name, etcd)
}

// D5: pods of the former generation do not count for the current one, and the status describes the current state. D6: the phase also
// returns to an earlier one.
func TestTheStatusDescribesTheCurrentSpec(t *testing.T) {
	i := install(t, shard("honest"))
	if rs := i.settle(t); rs.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("phase %s", rs.Status.Phase)
	}
	change(t, i.Cluster, "honest", &v1alpha1.RootShard{}, func(rs *v1alpha1.RootShard) { rs.Spec.Logging = &v1alpha1.LoggingSpec{Level: 4} })
	rs := i.reconcile(t)
	if err := says(rs.Status.Conditions, "Ready", metav1.ConditionFalse, "RollingOut"); err != nil {
		t.Errorf("after a change of the pods that was not observed yet: %v", err)
	}
	i.Roll(t, "honest-kcp")
	rs = i.reconcile(t)
	ready(t, rs.Status.Conditions)
	if c := meta.FindStatusCondition(rs.Status.Conditions, "Ready"); c.ObservedGeneration != rs.Generation || rs.Generation != 2 {
		t.Errorf("generation %d, and %+v", rs.Generation, c)
	}
	for readyPods, want := range map[int32]string{1: "1 of 2 pods", 0: "none of 2 pods"} {
		set := i.set(t)
		set.Status.ReadyReplicas, set.Status.AvailableReplicas = readyPods, readyPods
		i.MustUpdateStatus(t, set)
		rs = i.reconcile(t)
		c := meta.FindStatusCondition(rs.Status.Conditions, "Ready")
		if !strings.Contains(c.Message, want) {
			t.Errorf("with %d pods it says %q", readyPods, c.Message)
		}
		if phase := map[int32]v1alpha1.Phase{1: v1alpha1.PhaseRunning, 0: v1alpha1.PhaseProvisioning}[readyPods]; rs.Status.Phase != phase {
			t.Errorf("phase %s with %d pods", rs.Status.Phase, readyPods)
		}
	}
	change(t, i.Cluster, "honest", &v1alpha1.RootShard{}, func(rs *v1alpha1.RootShard) { rs.Finalizers = []string{"example.com/wait"} })
	if err := i.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	i.Roll(t, "honest-kcp")
	if rs = i.reconcile(t); rs.Status.Phase != v1alpha1.PhaseDeleting {
		t.Errorf("phase %s while it is deleted", rs.Status.Phase)
	}
	change(t, i.Cluster, "honest", &v1alpha1.RootShard{}, func(rs *v1alpha1.RootShard) { rs.Finalizers = nil })
}

// D9: names of objects of two owners can be equal. The second owner reports the conflict, and the objects of the first one do not change.
func TestANameConflictIsReportedAndChangesNoObjects(t *testing.T) {
	i := install(t, shard("twin"))
	i.settle(t)
	before := versions(t, i.Cluster, operatortest.Read(t, i.Cluster, "twin", &v1alpha1.RootShard{}))
	second := install(t, shard("twin-client")).reconcile(t) // its authority would be the one of twin's clients
	c := meta.FindStatusCondition(second.Status.Conditions, "Stalled")
	if c == nil || c.Reason != "NameConflict" || !strings.Contains(c.Message, "belongs to RootShard twin") {
		t.Errorf("it says %+v", c)
	}
	managed := shard("etcds")
	managed.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	theirs := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "etcds-etcd"}}
	i.MustCreate(t, theirs)
	if err := says(install(t, managed).reconcile(t).Status.Conditions, "EtcdReady", metav1.ConditionFalse, "NameConflict"); err != nil {
		t.Error(err)
	}
	k := accessTo("thief", "twin")
	k.Spec.SecretRef.Name = "twin-server"
	i.access(t, k)
	if err := says(k.Status.Conditions, "Stalled", metav1.ConditionTrue, "NameConflict"); err != nil {
		t.Error(err)
	}
	if after := versions(t, i.Cluster, operatortest.Read(t, i.Cluster, "twin", &v1alpha1.RootShard{})); !maps.Equal(before, after) {
		t.Errorf("the objects of the first have changed:\n%v\n%v", before, after)
	}
}

// D26: objects from Go clients, with empty values, are accepted.
func TestMinimalObjectsOfGoClientsAreAccepted(t *testing.T) {
	admin := cluster(t, host)
	named := metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "least"}
	store := v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}
	rs := &v1alpha1.RootShard{ObjectMeta: named}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	rs.Spec.Etcd.Managed = &v1alpha1.EtcdClusterSpec{}
	k := accessTo("least", "least")
	k.Spec.Authorization = &v1alpha1.KubeconfigAuthorization{ClusterRoleBindings: v1alpha1.KubeconfigClusterRoleBindings{ClusterRoles: []string{"view"}}}
	k.Spec.TargetWorkspace = "root:team"
	of := v1alpha1.RootShardConfig{Reference: &v1alpha1.LocalReference{Name: "least"}}
	s := shardOf("lesser", "least")
	f := &v1alpha1.FrontProxy{ObjectMeta: named, Spec: v1alpha1.FrontProxySpec{RootShard: of, External: &v1alpha1.FrontProxyExternalConfig{}}}
	v := &v1alpha1.VirtualWorkspace{ObjectMeta: named}
	v.Spec.Target.ShardRef, v.Spec.External = &v1alpha1.LocalReference{Name: "lesser"}, v1alpha1.ExternalConfig{Hostname: "views.example.com", Port: 443}
	for _, object := range []client.Object{
		rs, k, s, f, v, &v1alpha1.CacheServer{ObjectMeta: named}, &v1alpha1.EtcdCluster{ObjectMeta: named},
		&v1alpha1.EtcdBackup{ObjectMeta: named, Spec: v1alpha1.EtcdBackupSpec{Cluster: "least", Store: store}},
		&v1alpha1.EtcdBackupSchedule{ObjectMeta: named, Spec: v1alpha1.EtcdBackupScheduleSpec{Cluster: "least", Store: store, Schedule: "@daily"}},
	} {
		if err := admin.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Error(err)
		}
	}
}

// D28: renewal keeps the keys of CAs and of service accounts, for every kind that requests certificates. Other keys are replaced.
func TestRenewalKeepsTheKeysThatOthersTrust(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	rs := shard("keys")
	rs.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	admin.MustCreate(t, rs, accessTo("keys", "keys"))
	kcptest.Eventually(t, "all certificates are requested", func(ctx context.Context) error {
		seen := map[string]bool{}
		list := &certmanager.CertificateList{}
		if err := admin.List(ctx, list, client.InNamespace(operatortest.Namespace)); err != nil {
			return err
		}
		for _, c := range list.Items {
			want := certmanager.RotationPolicyAlways
			if c.Spec.IsCA || strings.HasSuffix(c.Name, "-service-account") {
				want = certmanager.RotationPolicyNever
			}
			if got := c.Spec.PrivateKey.RotationPolicy; got != want {
				t.Errorf("Certificate %s has the rotation policy %s", c.Name, got)
			}
			seen[c.Name] = true
		}
		for _, name := range []string{"keys-ca", "keys-client-ca", "keys-service-account", "keys-server", "keys-etcd-ca", "keys-etcd-peer-ca", "keys-etcd-server", "kubeconfig-cert-keys"} {
			if !seen[name] {
				return fmt.Errorf("there is no %s", name)
			}
		}
		return nil
	})
}

// D29: a Kubeconfig is deleted immediately, whatever else was deleted; its remaining objects are deleted when the kcp no longer exists.
func TestNothingBlocksTheDeletionOfAKubeconfig(t *testing.T) {
	for _, test := range []struct {
		name string
		gone func(t *testing.T, i *installation)
		left bool
	}{
		{"no pod answers", func(*testing.T, *installation) {}, true},
		{"the keys are gone", func(t *testing.T, i *installation) {
			for _, name := range []string{i.name + "-kcp-operator", i.name + "-merged-ca-bundle"} {
				if err := i.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"the RootShard is gone", func(t *testing.T, i *installation) {
			if err := i.Delete(t.Context(), operatortest.Read(t, i.Cluster, i.name, &v1alpha1.RootShard{})); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "gone-" + kcptest.Suffix()
			rs := shard(name)
			rs.Spec.ShardBaseURL = "https://127.0.0.1:1" // nothing listens there
			i := install(t, rs)
			i.settle(t)
			k := accessTo(name, name)
			k.Spec.Authorization = &v1alpha1.KubeconfigAuthorization{ClusterRoleBindings: v1alpha1.KubeconfigClusterRoleBindings{ClusterRoles: []string{"view"}}}
			i.MustCreate(t, k)
			i.operator.Reconcile(t, &kubeconfig.Reconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Bind: kcpaccess.Bind}, name)
			if k = operatortest.Read(t, i.Cluster, name, k); k.Status.Authorization == nil {
				t.Fatalf("roles are not tried to be bound: %+v", k.Status)
			}
			test.gone(t, i)
			if err := i.Delete(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			if err := i.Get(t.Context(), operatortest.Key(name), k); !apierrors.IsNotFound(err) {
				t.Errorf("it still exists (%v)", err)
			}
			r := &kubeconfig.Revoker{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Bind: kcpaccess.Bind}
			if result := i.operator.Reconcile(t, r, string(k.UID)); (result.RequeueAfter > 0) != test.left {
				t.Errorf("it comes back after %v", result.RequeueAfter)
			}
			err := i.Get(t.Context(), operatortest.Key("kubeconfig-roles-"+string(k.UID)), &corev1.Secret{})
			if apierrors.IsNotFound(err) == test.left {
				t.Errorf("what tells where roles are: %v", err)
			}
		})
	}
}

// Customizations in a spec can be invalid in ways that only the API server detects. They are reported once, with the field, and no pod is
// replaced.
func TestObjectsThatTheAPIServerRefusesAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.RootShard)
		want   string
	}{
		"a volume at no volume": {func(rs *v1alpha1.RootShard) {
			rs.Spec.ExtraVolumeMounts = []corev1.VolumeMount{{Name: "nothing", MountPath: "/nowhere"}}
		}, "spec.template.spec.containers[0].volumeMounts"},
		"more than the limit": {func(rs *v1alpha1.RootShard) {
			rs.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}}
		}, "spec.template.spec.containers[0].resources.requests"},
		"an address that no Service can have": {func(rs *v1alpha1.RootShard) {
			rs.Spec.ServiceTemplate = &v1alpha1.ServiceTemplate{Spec: &v1alpha1.ServiceSpecTemplate{ClusterIP: "kcp"}}
		}, "spec.clusterIPs"},
	} {
		t.Run(name, func(t *testing.T) {
			rs := shard("wrong-" + kcptest.Suffix())
			test.change(rs)
			i := install(t, rs)
			request := ctrl.Request{NamespacedName: operatortest.Key(i.name)}
			_, _ = i.reconciler.Reconcile(t.Context(), request) // a Service needs no certificate, and may be refused already
			i.Issue(t)
			if _, err := i.reconciler.Reconcile(t.Context(), request); err == nil {
				t.Error("it is not tried again")
			}
			rs = operatortest.Read(t, i.Cluster, i.name, rs)
			c := meta.FindStatusCondition(rs.Status.Conditions, "Stalled")
			if c == nil || c.Reason != "ObjectRejected" || !strings.Contains(c.Message, test.want) {
				t.Errorf("it says %+v", c)
			}
		})
	}
}

// D33: fields that others add to the operator's objects remain, and cause no writes; elements that they add to lists of the operator are
// removed.
func TestFieldsOfOtherManagersRemain(t *testing.T) {
	i := install(t, shard("added"))
	i.settle(t)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: types.UID("theirs")}
	sidecar := corev1.Container{Name: "injected", Image: "registry.example.com/sidecar:v1"}
	change(t, i.Cluster, "added-kcp", &appsv1.StatefulSet{}, func(set *appsv1.StatefulSet) {
		set.OwnerReferences = append([]metav1.OwnerReference{other}, set.OwnerReferences...)
		set.Labels["theirs"], set.Annotations["theirs"] = "kept", "kept"
		set.Spec.Template.Spec.Containers = append([]corev1.Container{sidecar}, set.Spec.Template.Spec.Containers...)
	})
	change(t, i.Cluster, "added-kcp", &networkingv1.NetworkPolicy{}, func(p *networkingv1.NetworkPolicy) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(22))}}})
	})
	i.operator.Writes()
	i.reconcile(t)
	if n := i.operator.Writes(); n != 2 { // the policy, and the status, because pods are replaced
		t.Errorf("%d writes", n)
	}
	set := i.set(t)
	if len(set.OwnerReferences) != 2 || set.Labels["theirs"] != "kept" || set.Annotations["theirs"] != "kept" || len(set.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("what others added is lost: %+v", set)
	}
	if policy := operatortest.Read(t, i.Cluster, "added-kcp", &networkingv1.NetworkPolicy{}); len(policy.Spec.Ingress) != 1 {
		t.Errorf("the change of another client remains: %+v", policy.Spec.Ingress)
	}
}

// D34: labels and annotations of an object are not copied to others. Argo CD, for example, prunes objects with its own label.
func TestLabelsAndAnnotationsAreNotCopiedToOwnedObjects(t *testing.T) {
	rs, k, etcd := shard("tracked"), accessTo("tracked", "tracked"), etcdNamed("tracks")
	for _, object := range []client.Object{rs, k, etcd} {
		object.SetLabels(map[string]string{"app.kubernetes.io/instance": "argo", "argocd.argoproj.io/instance": "argo"})
		object.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/tracking-id": "argo"})
	}
	i := install(t, rs)
	i.settle(t)
	i.access(t, k)
	beginEtcd(t, i, etcd)
	objects := 0
	for _, owner := range []client.Object{rs, k, etcd} {
		for _, object := range controlled(t, i.Cluster, owner) {
			objects++
			for _, values := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
				for key, value := range values {
					if value == "argo" || strings.Contains(key, "last-applied") {
						t.Errorf("%T %s has %s: %s", object, object.GetName(), key, value)
					}
				}
			}
		}
	}
	if objects < 35 {
		t.Errorf("only %d objects were looked at", objects)
	}
}
