package etcdcluster

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// NetworkPolicy returns a policy that allows connections between members, connections of clients, the operator and snapshot Jobs to
// members, and access to their metrics from everywhere. Clients are the labels of pods. If the namespace of the operator is empty, the
// client port is open to all.
func NetworkPolicy(cluster *v1alpha1.EtcdCluster, clients []map[string]string, operator string) *networkingv1.NetworkPolicy {
	pods := func(component string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labelsOf(cluster, component)}}
	}
	var clientPeers []networkingv1.NetworkPolicyPeer
	if operator != "" {
		for _, labels := range clients {
			clientPeers = append(clientPeers, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}})
		}
		clientPeers = append(clientPeers, pods(componentLabel), pods(snapshotLabel), networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: operator}}})
	}
	rule := func(port string, from ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: from, Ports: []networkingv1.NetworkPolicyPort{
			{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(port))},
		}}
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: meta(cluster, cluster.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: labels(cluster)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				rule(clientPortName, clientPeers...), rule(peerPortName, pods(componentLabel)), rule(metricsPortName),
			},
		},
	}
}
