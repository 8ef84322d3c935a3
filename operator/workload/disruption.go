package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodDisruptionBudget builds what lets no more than one pod be evicted at a time, or returns nil if none is wanted. Pods that
// do not work anyway may always be evicted.
func PodDisruptionBudget(c *Component) *policyv1.PodDisruptionBudget {
	wanted := c.Replicas == nil || *c.Replicas > 1
	if c.PDB != nil && c.PDB.Enabled != nil {
		wanted = *c.PDB.Enabled
	}
	if !wanted {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: c.meta(),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: c.Labels()},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}
