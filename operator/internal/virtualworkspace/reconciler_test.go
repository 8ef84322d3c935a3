package virtualworkspace_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/virtualworkspace"
)

func TestAVirtualWorkspaceIsReportedAsNotSupported(t *testing.T) {
	c := operatortest.New(&v1alpha1.VirtualWorkspace{ObjectMeta: metav1.ObjectMeta{Name: "views"}})
	reconciler := &virtualworkspace.Reconciler{Client: c, Live: c, Recorder: c.Events}
	c.Reconcile(t, reconciler, "views")
	v := operatortest.Read(t, c, "views", &v1alpha1.VirtualWorkspace{})
	stalled := meta.FindStatusCondition(v.Status.Conditions, "Stalled")
	if stalled == nil || stalled.Status != metav1.ConditionTrue || stalled.Reason != "NotSupported" || v.Status.ObservedGeneration != v.Generation {
		t.Errorf("status: %+v", v.Status)
	}
	c.WritesNothing(t, func() { c.Reconcile(t, reconciler, "views") })
}
