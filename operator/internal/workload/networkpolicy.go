package workload

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NetworkPolicy builds a policy that allows only HTTPS, from anywhere, and reports whether it is wanted.
func NetworkPolicy(c *Component) (policy *networkingv1.NetworkPolicy, wanted bool) {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: c.meta(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: c.Labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{
				{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(PortName))},
			}}},
		},
	}, c.NetworkPolicy != nil && c.NetworkPolicy.Enabled
}
