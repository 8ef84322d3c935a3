// Package logicalcluster leads every LogicalCluster through its phases, makes the namespaces that a cluster starts with,
// and deletes what a cluster holds before its LogicalCluster goes.
package logicalcluster

import (
	"maps"
	"slices"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// next returns what the metadata and status of lc should be: the decision of the controller, without side effects.
func next(lc *corev1alpha1.LogicalCluster, externalURL string) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	out.Status.Phase = nextPhase(lc)
	out.Status.URL = externalURL + "/clusters/" + lc.Annotations["kcp.io/cluster"]
	if out.Labels[corev1alpha1.PhaseLabel] != string(out.Status.Phase) {
		out.Labels = maps.Clone(out.Labels)
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[corev1alpha1.PhaseLabel] = string(out.Status.Phase)
	}
	held := slices.Contains(out.Finalizers, corev1alpha1.TerminatorsFinalizer)
	switch wanted := len(lc.Status.Terminators) > 0; {
	case wanted && !held && lc.DeletionTimestamp == nil:
		out.Finalizers = append(slices.Clone(out.Finalizers), corev1alpha1.TerminatorsFinalizer)
	case !wanted && held:
		out.Finalizers = slices.DeleteFunc(slices.Clone(out.Finalizers), func(f string) bool { return f == corev1alpha1.TerminatorsFinalizer })
	}
	if lc.Status.Phase == "" || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling {
		// That a LogicalCluster exists means that it is scheduled; from here on its steps count.
		out.Status.Initializers = slices.Clone(lc.Spec.Initializers)
		out.Status.Terminators = slices.Clone(lc.Spec.Terminators)
	}
	return out
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
		if len(lc.Spec.Initializers) > 0 {
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
	}
	return lc.Status.Phase
}
