package etcdcluster

import (
	"cmp"
	"fmt"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
)

// Ports of members.
const (
	ClientPort  = 2379
	PeerPort    = 2380
	MetricsPort = 8080
	httpPort    = 2381 // within the pod
)

// ClientServiceName returns the name of the Service of the members that are ready.
func ClientServiceName(cluster string) string { return cluster + "-client" }

// ClientSecretName returns the name of the Secret with the client certificate.
func ClientSecretName(cluster string) string { return cluster + "-client" }

// ClientIssuerName returns the name of the Issuer of certificates that the members accept.
func ClientIssuerName(cluster string) string { return cluster + "-ca" }

// ClientURL returns the URL for clients of a cluster.
func ClientURL(cluster *v1alpha1.EtcdCluster) string {
	return fmt.Sprintf("https://%s.%s.svc.%s:%d", ClientServiceName(cluster.Name), cluster.Namespace, domain(cluster), ClientPort)
}

func peerServiceName(cluster string) string { return cluster + "-peers" }

// domain returns the DNS domain of the host cluster.
func domain(cluster *v1alpha1.EtcdCluster) string {
	return cmp.Or(cluster.Spec.ClusterDomain, "cluster.local")
}

// memberName returns the name of a member, which is that of its pod.
func memberName(cluster *v1alpha1.EtcdCluster, ordinal int) string {
	return fmt.Sprintf("%s-%d", cluster.Name, ordinal)
}

// volumeName returns the name of the PersistentVolumeClaim of a member, as the StatefulSet creates it.
func volumeName(cluster *v1alpha1.EtcdCluster, ordinal int) string {
	return dataVolume + "-" + memberName(cluster, ordinal)
}

// memberHost returns the host name of a member, which resolves even if the member is not ready.
func memberHost(cluster *v1alpha1.EtcdCluster, member string) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", member, peerServiceName(cluster.Name), cluster.Namespace, domain(cluster))
}

// Values of the component label of pods: members, and Jobs.
const (
	componentLabel = "etcd"
	snapshotLabel  = "etcd-snapshot"
)

// labels returns the labels of all objects of a cluster, which also select the pods of its members.
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
