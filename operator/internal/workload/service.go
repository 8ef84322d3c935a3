package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

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
			Ports: []corev1.ServicePort{{Name: portName, Port: cmp.Or(c.ServicePort, Port), TargetPort: intstr.FromString(portName),
				Protocol: corev1.ProtocolTCP, AppProtocol: new("https")}},
		},
	}
	if c.Service != nil && c.Service.Spec != nil {
		service.Spec.Type = cmp.Or(c.Service.Spec.Type, service.Spec.Type)
		service.Spec.ClusterIP = c.Service.Spec.ClusterIP
	}
	return service
}
