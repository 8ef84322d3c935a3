package scheduling

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
)

// MirrorStatus copies the status of a logical cluster, nil if it no longer exists, to its workspace, which is not being
// deleted.
func (s *Scheduler) MirrorStatus(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	initialized := corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceInitialized, Status: metav1.ConditionTrue}
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	switch {
	case lc == nil:
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable
		initialized.Status, initialized.Severity, initialized.Reason = metav1.ConditionFalse, "Error", tenancyv1alpha1.ReasonWorkspaceDisappeared
		initialized.Message = "the logical cluster " + ws.Spec.Cluster + " does not exist"
	case lc.Status.Phase == corev1alpha1.LogicalClusterPhaseInactive:
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseInactive
		ws.Status.Initializers, ws.Status.Terminators = nil, lc.Status.Terminators
	case len(lc.Status.Initializers) > 0 || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling || lc.Status.Phase == "":
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
		ws.Status.Initializers, ws.Status.Terminators = lc.Status.Initializers, lc.Status.Terminators
		initialized.Status, initialized.Severity, initialized.Reason = metav1.ConditionFalse, "Info", tenancyv1alpha1.ReasonInitializerExists
		initialized.Message = fmt.Sprintf("initializers still exist: %v", lc.Status.Initializers)
	default:
		ws.Status.Initializers, ws.Status.Terminators = nil, lc.Status.Terminators
		ShrinkOwner(ws)
	}
	conditions.Set(&ws.Status.Conditions, initialized)
	metav1.SetMetaDataLabel(&ws.ObjectMeta, corev1alpha1.PhaseLabel, string(ws.Status.Phase))
}

// MirrorRemoval writes into a workspace that is being deleted what its logical cluster, nil if that does not exist, waits for.
func MirrorRemoval(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
	if lc == nil {
		ws.Finalizers = slices.DeleteFunc(ws.Finalizers, func(f string) bool { return f == tenancyv1alpha1.LogicalClusterFinalizer })
	} else {
		if ws.Status.Terminators = lc.Status.Terminators; len(ws.Status.Terminators) > 0 {
			ws.Status.Phase = corev1alpha1.LogicalClusterPhaseTerminating
		}
		for _, condition := range lc.Status.Conditions {
			if condition.Type == tenancyv1alpha1.WorkspaceContentDeleted {
				conditions.Set(&ws.Status.Conditions, condition)
			}
		}
	}
	metav1.SetMetaDataLabel(&ws.ObjectMeta, corev1alpha1.PhaseLabel, string(ws.Status.Phase))
}
