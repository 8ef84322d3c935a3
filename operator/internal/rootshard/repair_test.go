package rootshard_test

import (
	"fmt"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// etcd sets the condition Available of a managed etcd.
func (w *world) etcd(t *testing.T, available metav1.ConditionStatus) {
	t.Helper()
	etcd := operatortest.Read(t, w.Cluster, "kcp-etcd", &v1alpha1.EtcdCluster{})
	etcd.Status = v1alpha1.EtcdClusterStatus{Endpoints: []string{"https://a:2379"}, ClientSecretName: "kcp-etcd-client"}
	meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: "Available", Status: available, Reason: "Test", Message: "of the test"})
	w.MustUpdateStatus(t, etcd)
}

// list lists the objects of kinds, by default of all kinds that the operator creates for a RootShard.
func list(t *testing.T, c *operatortest.Cluster, kinds ...client.ObjectList) []client.Object {
	t.Helper()
	if len(kinds) == 0 {
		kinds = []client.ObjectList{
			&certmanager.IssuerList{}, &certmanager.CertificateList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &appsv1.StatefulSetList{},
			&policyv1.PodDisruptionBudgetList{}, &v1alpha1.EtcdClusterList{},
		}
	}
	var all []client.Object
	for _, kind := range kinds {
		if err := c.List(t.Context(), kind, client.InNamespace(operatortest.Namespace)); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(kind, func(item runtime.Object) error {
			all = append(all, item.(client.Object))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A False condition does not block steps that do not depend on it.
func TestDeletedObjectsAreCreatedAgainWhicheverConditionIsFalse(t *testing.T) {
	for _, test := range []struct {
		condition string
		fail      func(*testing.T, *world)
		// waits is the object that cannot be created again before the condition is True.
		waits string
	}{
		{"CertificatesReady", func(t *testing.T, w *world) {
			certificate := operatortest.Read(t, w.Cluster, "kcp-server", &certmanager.Certificate{})
			certificate.Status.Conditions[0].Status = cmmeta.ConditionFalse
			w.MustUpdateStatus(t, certificate)
		}, ""},
		{"EtcdReady", func(t *testing.T, w *world) { w.etcd(t, metav1.ConditionFalse) }, ""},
		{"ReferenceValid", func(t *testing.T, w *world) {
			if err := w.Delete(t.Context(), operatortest.Read(t, w.Cluster, "audit", &corev1.ConfigMap{})); err != nil {
				t.Fatal(err)
			}
		}, "*v1.StatefulSet kcp-kcp"},
		{"Available", func(t *testing.T, w *world) {
			set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
			set.Status.ReadyReplicas = 0
			w.MustUpdateStatus(t, set)
		}, ""},
	} {
		t.Run(test.condition, func(t *testing.T) {
			rs := external()
			rs.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
			rs.Spec.Audit = &v1alpha1.AuditSpec{Policy: &v1alpha1.AuditPolicySpec{ConfigMap: &v1alpha1.LocalKeyReference{Name: "audit", Key: "policy"}}}
			w := newWorld(rs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "audit"}, Data: map[string]string{"policy": "x"}},
				secret("kcp-etcd-client", map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")}),
				secret("kcp-etcd-trust", map[string][]byte{"clients.crt": []byte("a")}))
			w.reconcile(t)
			w.etcd(t, metav1.ConditionTrue)
			expect(t, w.settle(t), "Ready", metav1.ConditionTrue, "", "")
			test.fail(t, w)
			rs = w.reconcile(t)
			expect(t, rs, test.condition, metav1.ConditionFalse, "", "")
			rs.Spec.Replicas = new(int32(5))
			w.MustUpdate(t, rs)
			w.reconcile(t)
			if n := *operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Replicas; n != 5 {
				t.Errorf("there are %d replicas, want 5", n)
			}
			for _, object := range list(t, w.Cluster) {
				_, etcd := object.(*v1alpha1.EtcdCluster)
				if made := object.GetAnnotations()["operator.kcp.io/applied"] != ""; !made || etcd && test.condition == "EtcdReady" { // its status is gone with it
					continue
				}
				if err := w.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
				expect(t, w.reconcile(t), test.condition, metav1.ConditionFalse, "", "")
				what := fmt.Sprintf("%T %s", object, object.GetName())
				err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object)
				if waits := what == test.waits; client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != waits {
					t.Errorf("%s is deleted, and then: %v", what, err)
				} else if waits {
					expect(t, operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{}), "Available", metav1.ConditionFalse, "NotCreated", "")
				}
			}
		})
	}
}
