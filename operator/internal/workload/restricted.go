package workload

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// user is the user ID of containers. It is the usual one of images without an operating system.
const user = 65532

// Restricted builds the parts that all pods of the operator have in common: they meet the restricted Pod Security Standard, those with the
// same labels are spread, and each has some seconds to terminate.
func Restricted(labels map[string]string, pullSecrets []v1alpha1.LocalReference, seconds int64, container corev1.Container) corev1.PodSpec {
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), Privileged: new(bool), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken:  new(bool),
		EnableServiceLinks:            new(bool),
		TerminationGracePeriodSeconds: &seconds,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container},
	}
	for _, topology := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: topology, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		})
	}
	for _, secret := range pullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	return spec
}
