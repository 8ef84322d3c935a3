// Package logicalcluster sets the phase of every LogicalCluster, and deletes the content of a logical cluster before the LogicalCluster.
package logicalcluster

import (
	"slices"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// advance sets the metadata and status that lc should have. It is the decision of the controller, without side effects.
func advance(lc *corev1alpha1.LogicalCluster, externalURL string) {
	if lc.Status.Phase == "" || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling {
		// A LogicalCluster that exists is scheduled. Its initializers and terminators are next.
		lc.Status.Initializers = scheduling.Remaining(lc.Spec.Initializers)
		lc.Status.Terminators = slices.Clone(lc.Spec.Terminators)
	}
	lc.Status.Phase = nextPhase(lc)
	lc.Status.URL = urlOf(lc, externalURL)
	held := slices.Contains(lc.Finalizers, corev1alpha1.TerminatorsFinalizer)
	switch wanted := len(lc.Status.Terminators) > 0; {
	case wanted && !held && lc.DeletionTimestamp == nil:
		lc.Finalizers = append(lc.Finalizers, corev1alpha1.TerminatorsFinalizer)
	case !wanted && held:
		lc.Finalizers = slices.DeleteFunc(lc.Finalizers, func(f string) bool { return f == corev1alpha1.TerminatorsFinalizer })
	}
	scheduling.SetLabels(lc)
}

func urlOf(lc *corev1alpha1.LogicalCluster, externalURL string) string {
	return externalURL + "/clusters/" + string(logicalcluster.Of(lc))
}

func nextPhase(lc *corev1alpha1.LogicalCluster) corev1alpha1.LogicalClusterPhase {
	inactive := lc.Annotations[corev1alpha1.InactiveAnnotation] == "true"
	switch {
	case lc.DeletionTimestamp != nil && len(lc.Status.Terminators) > 0:
		return corev1alpha1.LogicalClusterPhaseTerminating
	case lc.DeletionTimestamp != nil:
		return corev1alpha1.LogicalClusterPhaseDeleting
	}
	switch lc.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling:
		if len(scheduling.Remaining(lc.Spec.Initializers)) > 0 {
			return corev1alpha1.LogicalClusterPhaseInitializing
		}
		return corev1alpha1.LogicalClusterPhaseReady
	case corev1alpha1.LogicalClusterPhaseInitializing:
		if len(lc.Status.Initializers) == 0 {
			return corev1alpha1.LogicalClusterPhaseReady
		}
	case corev1alpha1.LogicalClusterPhaseReady:
		if inactive {
			return corev1alpha1.LogicalClusterPhaseInactive
		}
	case corev1alpha1.LogicalClusterPhaseInactive:
		if !inactive {
			return corev1alpha1.LogicalClusterPhaseReady
		}
	default: // the phase of what is deleted does not depend on the former one
	}
	return lc.Status.Phase
}
