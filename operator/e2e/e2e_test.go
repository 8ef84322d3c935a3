package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const image = "registry.example.com/kcp:v1"

// shard returns a root shard with all optional objects.
func shard(name string) *v1alpha1.RootShard {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 6443}
	rs.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{etcdEndpoint}
	rs.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{Enabled: true}
	return rs
}

func accessTo(name, target string) *v1alpha1.Kubeconfig {
	k := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	k.Spec = v1alpha1.KubeconfigSpec{
		Target:   v1alpha1.KubeconfigTarget{RootShardRef: &v1alpha1.LocalReference{Name: target}},
		Username: "alice", Validity: v1alpha1.Duration{Duration: metav1.Duration{Duration: 1e9 * 3600 * 24}},
		SecretRef: v1alpha1.LocalReference{Name: name + "-kubeconfig"},
	}
	return k
}

// versions returns the resource versions of all objects that an owner controls.
func versions(t *testing.T, c *operatortest.Cluster, owner client.Object) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, object := range controlled(t, c, owner) {
		all[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
	}
	return all
}

// controlled returns all objects that an owner controls, and those that are kept for the next owner of the same name.
func controlled(t *testing.T, c *operatortest.Cluster, owner client.Object) []client.Object {
	t.Helper()
	kind, err := c.GroupVersionKindFor(owner)
	if err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{},
		&networkingv1.NetworkPolicyList{}, &networkingv1.IngressList{}, &autoscalingv2.HorizontalPodAutoscalerList{}, &certmanager.CertificateList{}, &certmanager.IssuerList{},
	} {
		if err := c.List(t.Context(), list, client.InNamespace(operatortest.Namespace)); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			if metav1.IsControlledBy(object, owner) || object.GetAnnotations()["operator.kcp.io/kept-for"] == kind.Kind+" "+owner.GetName() {
				all = append(all, object)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestDefaultsOfTheServerCauseNoWrites(t *testing.T) {
	rs := shard("settled")
	rs.Spec.Autoscaling = &v1alpha1.AutoscalingSpec{MaxReplicas: 3, TargetCPUUtilizationPercentage: new(int32(70)),
		TargetMemoryUtilizationPercentage: new(int32(90))}
	i := install(t, rs)
	rs = i.settle(t)
	before := versions(t, i.Cluster, rs)
	if len(before) != 26 {
		t.Errorf("it controls %d objects: %v", len(before), before)
	}
	i.operator.WritesNothing(t, func() { i.reconcile(t) })
	// Fields that others add remain, and their changes are reverted.
	change(t, i.Cluster, "settled-kcp", &appsv1.StatefulSet{}, func(set *appsv1.StatefulSet) {
		set.Labels["theirs"], set.Spec.Template.Spec.Containers[0].Image = "kept", "registry.example.com/evil:v1"
	})
	i.reconcile(t)
	if set := i.set(t); set.Spec.Template.Spec.Containers[0].Image != image || set.Labels["theirs"] != "kept" {
		t.Errorf("image %s, labels %v", set.Spec.Template.Spec.Containers[0].Image, set.Labels)
	}
}

func ready(t *testing.T, conditions []metav1.Condition) {
	t.Helper()
	if c := meta.FindStatusCondition(conditions, "Ready"); c == nil || c.Status != metav1.ConditionTrue {
		t.Fatalf("Ready is %+v", c)
	}
}

// D10: a renewed certificate is written to the kubeconfig immediately. D16: missing objects are reported. D17: changes are detected.
func TestWatchesTriggerReconciliationsOfDependents(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	rs, k := shard("woken"), accessTo("woken", "woken")
	rs.Spec.Etcd.TLSConfig = &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "woken-etcd"}}
	rs.Spec.Audit = &v1alpha1.AuditSpec{Policy: &v1alpha1.AuditPolicySpec{ConfigMap: &v1alpha1.LocalKeyReference{Name: "woken-audit", Key: "policy"}}}
	eventually := func(what string, check func() error) {
		t.Helper()
		kcptest.Eventually(t, what, func(context.Context) error { return check() })
	}
	shardSays := func(name string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		eventually("RootShard "+name+" "+reason, func() error {
			return says(operatortest.Read(t, admin, "woken", rs).Status.Conditions, name, status, reason)
		})
	}
	admin.MustCreate(t, k)
	eventually("the Kubeconfig misses its target", func() error {
		return says(operatortest.Read(t, admin, "woken", k).Status.Conditions, "ReferenceValid", metav1.ConditionFalse, "ReferenceNotFound")
	})
	admin.MustCreate(t, rs)
	eventually("the Kubeconfig has its target", func() error {
		return says(operatortest.Read(t, admin, "woken", k).Status.Conditions, "ReferenceValid", metav1.ConditionTrue, "AsExpected")
	})
	shardSays("ReferenceValid", metav1.ConditionFalse, "ReferenceNotFound")
	admin.MustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "woken-etcd"},
		Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")}})
	admin.MustCreate(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "woken-audit"}, Data: map[string]string{"policy": "p"}})
	shardSays("ReferenceValid", metav1.ConditionTrue, "AsExpected")
	eventually("pods are requested", func() error {
		admin.Issue(t)
		return admin.Get(t.Context(), operatortest.Key("woken-kcp"), &appsv1.StatefulSet{})
	})
	admin.Roll(t, "woken-kcp")
	shardSays("Ready", metav1.ConditionTrue, "Reconciled")
	eventually("the Kubeconfig is Ready", func() error {
		admin.Issue(t)
		return says(operatortest.Read(t, admin, "woken", k).Status.Conditions, "Ready", metav1.ConditionTrue, "Reconciled")
	})
	t.Run("by the change of an audit policy", func(t *testing.T) {
		before := operatortest.Read(t, admin, "woken-kcp", &appsv1.StatefulSet{}).Generation
		change(t, admin, "woken-audit", &corev1.ConfigMap{}, func(policy *corev1.ConfigMap) { policy.Data["policy"] = "changed" })
		eventually("the pods are replaced", func() error {
			if operatortest.Read(t, admin, "woken-kcp", &appsv1.StatefulSet{}).Generation == before {
				return errors.New("they are not")
			}
			return nil
		})
	})
	t.Run("by the renewal of a certificate", func(t *testing.T) {
		before := operatortest.Read(t, admin, "woken-kubeconfig", &corev1.Secret{}).ResourceVersion
		change(t, admin, "kubeconfig-cert-woken", &corev1.Secret{}, func(s *corev1.Secret) { s.Data["tls.crt"] = operatortest.PEM("renewed") })
		eventually("the kubeconfig follows", func() error {
			if operatortest.Read(t, admin, "woken-kubeconfig", &corev1.Secret{}).ResourceVersion == before {
				return errors.New("it does not")
			}
			return nil
		})
	})
	t.Run("by its deletion", func(t *testing.T) {
		if err := admin.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		eventually("the Kubeconfig and its key are gone", func() error {
			return errors.Join(kcptest.Gone(admin.Get(t.Context(), operatortest.Key("woken"), &v1alpha1.Kubeconfig{})),
				kcptest.Gone(admin.Get(t.Context(), operatortest.Key("kubeconfig-cert-woken"), &corev1.Secret{})))
		})
	})
}

func says(conditions []metav1.Condition, name string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, name)
	if c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("%s is %+v", name, c)
	}
	return nil
}

// D8: names of objects of a RootShard are longer than its own name.
func TestLongNamesWork(t *testing.T) {
	const name = "a123456789b123456789c123456789d123456789" // 40, the most that the definition allows
	rs := shard(name)
	rs.Spec.Monitoring = &v1alpha1.MonitoringSpec{}
	i := install(t, rs)
	i.reconcile(t)
	i.Issue(t)
	i.reconcile(t)
	if len(i.set(t).Spec.Template.Spec.Volumes) == 0 {
		t.Error("it has no volumes")
	}
	k := accessTo(name+"-"+name, name)
	i.access(t, k)
	ready(t, k.Status.Conditions)
	etcd := etcdNamed(name + "-etcd")
	beginEtcd(t, i, etcd)
	if n := len(controlled(t, i.Cluster, etcd)); n < 12 {
		t.Errorf("an etcd with a long name has only %d objects", n)
	}
}
