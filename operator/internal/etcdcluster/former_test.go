package etcdcluster

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestAStatefulSetIsCreatedAgainOnlyWhenThePodsOfTheFormerOneAreGone(t *testing.T) {
	var volumes []client.Object
	for _, name := range []string{"data-x-0", "data-x-1", "data-x-2"} {
		volumes = append(volumes, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(threeMembers(""))}})
	}
	m := newThreeMembers(append(volumes, threeMembers("first"))...)
	m.settle(t)
	last := operatortest.Read(t, m.Cluster, "x-2", &corev1.Pod{})
	last.Finalizers = []string{"example.com/terminates"} // the fake client deletes at once without it
	m.MustUpdate(t, last)
	m.remove(t, last)
	m.remove(t, operatortest.Read(t, m.Cluster, "x", &appsv1.StatefulSet{}))
	m.now = time.Now()
	for range 3 {
		m.Reconcile(t, m.reconciler, "x")
	}
	if m.found(t, &appsv1.StatefulSet{}, "x") {
		t.Error("the StatefulSet is created while pod x-2 of the former one terminates")
	}
	conditions := operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{}).Status.Conditions
	if c := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c.Reason != "FormerPods" || !strings.Contains(c.Message, "x-2") {
		t.Errorf("while the pod terminates: %+v", c)
	}
	last = operatortest.Read(t, m.Cluster, "x-2", &corev1.Pod{})
	last.Finalizers = nil
	m.MustUpdate(t, last)
	m.settle(t)
}
