package rootshard_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// A cache may still have the former status after two changes of a dependency. Nothing would trigger another reconciliation.
func TestAStatusIsCorrectedEvenIfTheCacheIsOutdated(t *testing.T) {
	w := newWorld(external())
	before := w.settle(t)
	expect(t, before, "Ready", metav1.ConditionTrue, "", "")
	w.ready(t, 0)
	expect(t, w.reconcile(t), "Ready", metav1.ConditionFalse, "NoPodReady", "")
	w.ready(t, 2)
	w.reconciler.Client = w.Behind(before)
	expect(t, w.reconcile(t), "Ready", metav1.ConditionTrue, "", "")
}

// ready sets the number of ready pods of the StatefulSet.
func (w *world) ready(t *testing.T, pods int32) {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Status.ReadyReplicas, set.Status.AvailableReplicas = pods, pods
	w.MustUpdateStatus(t, set)
}
