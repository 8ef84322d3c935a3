// Package conditions sets conditions in the status of the server's own objects in one form for all controllers.
package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Set adds or replaces a condition. The transition time is now if the status of the condition changed.
func Set(all *[]corev1alpha1.Condition, wanted corev1alpha1.Condition) {
	wanted.LastTransitionTime = metav1.Now()
	for i, c := range *all {
		if c.Type == wanted.Type {
			if c.Status == wanted.Status {
				wanted.LastTransitionTime = c.LastTransitionTime
			}
			(*all)[i] = wanted
			return
		}
	}
	*all = append(*all, wanted)
}

// FromError returns a condition, which is True if there is no problem.
func FromError(kind, reason string, problem error) corev1alpha1.Condition {
	if problem == nil {
		return corev1alpha1.Condition{Type: kind, Status: metav1.ConditionTrue}
	}
	return corev1alpha1.Condition{Type: kind, Status: metav1.ConditionFalse, Severity: "Error", Reason: reason, Message: problem.Error()}
}
