package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// expose adds the fields with which clients outside of the cluster reach a Service.
func expose(service *corev1.ServiceSpec, template *v1alpha1.ServiceSpecTemplate) {
	if template.LoadBalancerClass != "" {
		service.LoadBalancerClass = new(template.LoadBalancerClass)
	}
	for _, network := range template.LoadBalancerSourceRanges {
		service.LoadBalancerSourceRanges = append(service.LoadBalancerSourceRanges, string(network))
	}
	service.ExternalTrafficPolicy, service.Ports[0].NodePort = template.ExternalTrafficPolicy, template.NodePort
	service.HealthCheckNodePort, service.AllocateLoadBalancerNodePorts = template.HealthCheckNodePort, template.AllocateLoadBalancerNodePorts
	service.IPFamilyPolicy, service.IPFamilies = template.IPFamilyPolicy, template.IPFamilies
}

// Service builds the Service of the pods.
func Service(c *Component) *corev1.Service {
	var extra *v1alpha1.Metadata
	if c.Service != nil {
		extra = c.Service.Metadata
	}
	service := &corev1.Service{
		ObjectMeta: c.metaWith(extra),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: c.Labels(),
			Ports: []corev1.ServicePort{{Name: PortName, Port: cmp.Or(c.ServicePort, Port), TargetPort: intstr.FromString(PortName),
				Protocol: corev1.ProtocolTCP, AppProtocol: new("https")}},
		},
	}
	if c.Service != nil && c.Service.Spec != nil {
		service.Spec.Type = cmp.Or(c.Service.Spec.Type, service.Spec.Type)
		service.Spec.ClusterIP = c.Service.Spec.ClusterIP
		expose(&service.Spec, c.Service.Spec)
	}
	return service
}
