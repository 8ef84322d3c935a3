package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// PodDisruptionBudget is that of a component. Pods that do not work anyway may always be evicted.
func PodDisruptionBudget(c *Component) (budget *policyv1.PodDisruptionBudget, wanted bool) {
	return Budget(c.meta(), c.PDB, c.Replicas == nil || *c.Replicas > 1, policyv1.AlwaysAllow)
}

// Budget builds what lets no more than one of the pods with the labels of meta be evicted at a time, and tells whether it is
// wanted: as the spec says, or else if there are several.
func Budget(meta metav1.ObjectMeta, spec *v1alpha1.PDBSpec, several bool, unhealthy policyv1.UnhealthyPodEvictionPolicyType) (
	budget *policyv1.PodDisruptionBudget, wanted bool) {
	wanted = several
	if spec != nil && spec.Enabled != nil {
		wanted = *spec.Enabled
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			UnhealthyPodEvictionPolicy: &unhealthy,
		},
	}, wanted
}
