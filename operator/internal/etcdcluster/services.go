package etcdcluster

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Names of ports.
const (
	clientPortName  = "client"
	peerPortName    = "peer"
	metricsPortName = "metrics"
)

func meta(cluster *v1alpha1.EtcdCluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: labels(cluster)}
}

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromString(name), Protocol: corev1.ProtocolTCP}
}

// peerService gives members names. They find each other by these before they are ready, or they never would be.
func peerService(cluster *v1alpha1.EtcdCluster) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(cluster, peerServiceName(cluster.Name)),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: labels(cluster), PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{
				servicePort(clientPortName, ClientPort), servicePort(peerPortName, PeerPort), servicePort(metricsPortName, MetricsPort),
			},
		},
	}
}

// clientService leads to the members that are ready; one that still learns is not.
func clientService(cluster *v1alpha1.EtcdCluster) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(cluster, ClientServiceName(cluster.Name)),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: labels(cluster),
			Ports: []corev1.ServicePort{servicePort(clientPortName, ClientPort)},
		},
	}
}

// disruptionBudget lets one member be evicted at a time. The members that are counted are those of which there are pods: while
// the cluster begins or grows, an eviction could cost it its majority. A member that is not ready holds a copy of the data all
// the same, and the others may need it soon.
func disruptionBudget(cluster *v1alpha1.EtcdCluster) (budget *policyv1.PodDisruptionBudget, wanted bool) {
	return workload.Budget(meta(cluster, cluster.Name), cluster.Spec.PDB, replicas(cluster) > 1, policyv1.IfHealthyBudget)
}

// serviceMonitor tells a Prometheus of the members, whose metrics need no certificate.
func serviceMonitor(cluster *v1alpha1.EtcdCluster) (monitor *unstructured.Unstructured, wanted bool) {
	return workload.Monitor(meta(cluster, cluster.Name), cluster.Spec.Monitoring,
		map[string]any{"port": metricsPortName, "scheme": "http", "path": "/metrics"})
}
