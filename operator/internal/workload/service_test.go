package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// An upgrade of the operator must not change Services whose template sets none of these fields.
func TestAServiceWithoutATemplateLeavesExposureToTheCluster(t *testing.T) {
	for _, template := range []*v1alpha1.ServiceTemplate{nil, {}, {Spec: &v1alpha1.ServiceSpecTemplate{Type: corev1.ServiceTypeLoadBalancer}}} {
		spec := Service(&Component{Name: "kcp", Namespace: "team", Service: template}).Spec
		if spec.LoadBalancerClass != nil || spec.LoadBalancerSourceRanges != nil || spec.ExternalTrafficPolicy != "" || spec.Ports[0].NodePort != 0 ||
			spec.HealthCheckNodePort != 0 || spec.AllocateLoadBalancerNodePorts != nil || spec.IPFamilyPolicy != nil || spec.IPFamilies != nil {
			t.Errorf("%+v: %+v", template, spec)
		}
	}
}
