package mount

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
)

// phaseReady is the status.phase of objects whose server can be used. The others are Initializing, Connecting and Unknown.
const phaseReady = "Ready"

// observation is the URL of the server behind a workspace, or why the server is not used.
type observation struct{ url, reason, message string }

func missing(format string, args ...any) observation {
	return observation{reason: tenancyv1alpha1.ReasonMountObjectNotFound, message: fmt.Sprintf(format, args...)}
}

func notReady(format string, args ...any) observation {
	return observation{reason: tenancyv1alpha1.ReasonMountObjectNotReady, message: fmt.Sprintf(format, args...)}
}

// show writes an observation into a workspace. It keeps the last URL if the observation has none.
func (o observation) show(ws *tenancyv1alpha1.Workspace) {
	ready := corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceMountReady, Status: metav1.ConditionTrue}
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	if o.reason != "" {
		ready.Status, ready.Severity, ready.Reason, ready.Message = metav1.ConditionFalse, "Error", o.reason, o.message
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable
	} else {
		if ws.Spec.URL != o.url {
			ws.Spec.URL = o.url
			ws.Generation++
		}
		// There is nothing to initialize, but clients wait for this condition.
		conditions.Set(&ws.Status.Conditions, corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceInitialized, Status: metav1.ConditionTrue})
		scheduling.ShrinkOwner(ws)
	}
	conditions.Set(&ws.Status.Conditions, ready)
	metav1.SetMetaDataLabel(&ws.ObjectMeta, corev1alpha1.PhaseLabel, string(ws.Status.Phase))
}
