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

// Names of the ports of members.
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

// peerService returns the headless Service for the host names of members. It includes members that are not ready: they need to find each
// other to become ready.
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

// clientService returns the Service for clients. It selects the members that are ready; learners are not ready.
func clientService(cluster *v1alpha1.EtcdCluster) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(cluster, ClientServiceName(cluster.Name)),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: labels(cluster),
			Ports: []corev1.ServicePort{servicePort(clientPortName, ClientPort)},
		},
	}
}

// disruptionBudget returns a budget that allows the eviction of one member at a time. Only members with pods count: while the cluster
// starts or scales up, an eviction could cost it its majority. Members that are not ready are protected, too: they hold a copy of the data,
// which the other members may need.
func disruptionBudget(cluster *v1alpha1.EtcdCluster) (budget *policyv1.PodDisruptionBudget, wanted bool) {
	return workload.Budget(meta(cluster, cluster.Name), cluster.Spec.PDB, replicas(cluster) > 1, policyv1.IfHealthyBudget)
}

// serviceMonitor returns the ServiceMonitor of the members. Their metrics need no certificate.
func serviceMonitor(cluster *v1alpha1.EtcdCluster) (monitor *unstructured.Unstructured, wanted bool) {
	return workload.Monitor(meta(cluster, cluster.Name), cluster.Spec.Monitoring,
		map[string]any{"port": metricsPortName, "scheme": "http", "path": "/metrics"})
}
