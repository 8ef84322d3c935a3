package etcdcluster

import (
	"cmp"
	"fmt"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
)

// Ports of a member.
const (
	ClientPort  = 2379
	PeerPort    = 2380
	MetricsPort = 8080
	httpPort    = 2381 // inside of the pod
)

// ClientServiceName returns the name of the Service of the members that are ready.
func ClientServiceName(cluster string) string { return cluster + "-client" }

// ClientSecretName returns the name of the Secret with which clients are accepted.
func ClientSecretName(cluster string) string { return cluster + "-client" }

// ClientIssuerName returns the name of the Issuer of certificates that the members accept.
func ClientIssuerName(cluster string) string { return cluster + "-ca" }

// ClientURL returns what clients of a cluster connect to.
func ClientURL(cluster *v1alpha1.EtcdCluster) string {
	return fmt.Sprintf("https://%s.%s.svc.%s:%d", ClientServiceName(cluster.Name), cluster.Namespace, domain(cluster), ClientPort)
}

func peerServiceName(cluster string) string { return cluster + "-peers" }

// domain returns the domain of the host cluster.
func domain(cluster *v1alpha1.EtcdCluster) string {
	return cmp.Or(cluster.Spec.ClusterDomain, "cluster.local")
}

// memberName returns the name of a member, which is that of its pod.
func memberName(cluster *v1alpha1.EtcdCluster, ordinal int) string {
	return fmt.Sprintf("%s-%d", cluster.Name, ordinal)
}

// volumeName returns the name of a member's volume, as the StatefulSet makes it.
func volumeName(cluster *v1alpha1.EtcdCluster, ordinal int) string {
	return dataVolume + "-" + memberName(cluster, ordinal)
}

// memberHost returns the name by which a member is found, whether it is ready or not.
func memberHost(cluster *v1alpha1.EtcdCluster, member string) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", member, peerServiceName(cluster.Name), cluster.Namespace, domain(cluster))
}

// Components that pods are of: members, and what Jobs run.
const (
	componentLabel = "etcd"
	snapshotLabel  = "etcd-snapshot"
)

// labels of everything that belongs to a cluster, and selector of the pods of its members.
func labels(cluster *v1alpha1.EtcdCluster) map[string]string {
	return labelsOf(cluster, componentLabel)
}

func labelsOf(cluster *v1alpha1.EtcdCluster, component string) map[string]string {
	return map[string]string{
		apply.ManagedByLabel:          apply.FieldOwner,
		"app.kubernetes.io/name":      "etcd",
		"app.kubernetes.io/instance":  cluster.Name,
		"app.kubernetes.io/component": component,
	}
}
