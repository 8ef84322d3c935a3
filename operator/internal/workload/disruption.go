package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// PodDisruptionBudget builds the PodDisruptionBudget of a component. Unhealthy pods may always be evicted.
func PodDisruptionBudget(c *Component) (budget *policyv1.PodDisruptionBudget, wanted bool) {
	return Budget(c.meta(), c.PDB, c.Replicas == nil || *c.Replicas > 1, policyv1.AlwaysAllow)
}

// Budget builds a PodDisruptionBudget that allows one disruption of the pods with the labels of meta, and reports whether it is wanted: as
// the spec says, or by default if there are several pods.
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
