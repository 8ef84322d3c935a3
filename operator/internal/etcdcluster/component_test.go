package etcdcluster

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// component makes the cluster that of a component with three pods.
func (r *testCluster) component() {
	r.t.Helper()
	owner := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp", UID: "uid-kcp"}}
	reference := *metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind("RootShard"))
	cluster := r.cluster()
	cluster.OwnerReferences = []metav1.OwnerReference{reference}
	r.MustUpdate(r.t, cluster)
	r.MustCreate(r.t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "kcp-kcp",
		Labels:          map[string]string{apply.ManagedByLabel: apply.FieldOwner},
		OwnerReferences: []metav1.OwnerReference{reference}}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))}})
}

// componentHas sets how many of the three pods of the component are ready.
func (r *testCluster) componentHas(ready int32) {
	r.t.Helper()
	set := operatortest.Read(r.t, r.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: ready}
	r.MustUpdateStatus(r.t, set)
}

func (r *testCluster) podUID() types.UID {
	r.t.Helper()
	return operatortest.Read(r.t, r.Cluster, "x-0", &corev1.Pod{}).UID
}

// When both have changed, the pods of the component would restart while they have no etcd. The wait is bounded, because the component may
// need what the restart brings.
func TestMembersAreNotRestartedWhileTheirComponentRollsOut(t *testing.T) {
	r := newTestCluster(t, 1)
	now := time.Now()
	r.reconciler.Now = func() time.Time { return now }
	r.component()
	r.componentHas(3)
	r.ready(1)
	change := func() (before types.UID) {
		before = r.podUID()
		r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) {
			if spec.SnapshotCount == nil {
				spec.SnapshotCount = new(int64(5000))
			}
			*spec.SnapshotCount++
		})
		return before
	}
	waits := func(c *v1alpha1.EtcdCluster) bool {
		held := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRolloutHeld)
		return held != nil && held.Status == metav1.ConditionTrue && held.Reason == "ComponentRollingOut" &&
			held.Message == "pod 0 is replaced after that: waiting for RootShard kcp, at most 5m0s: 2 of 3 pods are ready, 3 are up to date"
	}
	r.componentHas(2)
	before := change()
	cluster := r.until("the wait is reported", waits)
	if why := Changing(cluster); why != "" {
		t.Errorf("the component waits in turn: %s", why)
	}
	if ready := apimeta.FindStatusCondition(cluster.Status.Conditions, "Ready"); ready.Status != metav1.ConditionFalse || ready.Reason != "ComponentRollingOut" {
		t.Errorf("Ready is %+v", ready)
	}
	r.staysUnchanged(3)
	if r.podUID() != before {
		t.Fatal("the member is restarted")
	}
	r.componentHas(3)
	r.until("the member is restarted", is(v1alpha1.ConditionProgressing))
	if why := Changing(r.cluster()); why == "" {
		t.Error("the component does not wait for the restart")
	}
	if r.ready(1); r.podUID() == before || is(v1alpha1.ConditionRolloutHeld)(r.cluster()) {
		t.Error("the member is not restarted")
	}

	r.componentHas(2) // and never becomes ready
	before = change()
	r.until("the wait is reported", waits)
	now = now.Add(workload.MaxWait)
	if r.ready(1); r.podUID() == before {
		t.Error("the member waits for ever")
	}
	r.componentHas(0) // nothing is left to protect
	before = change()
	if r.ready(1); r.podUID() == before {
		t.Error("the member waits for a component that does not work")
	}
}
