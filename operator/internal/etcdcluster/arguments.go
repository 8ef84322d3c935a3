package etcdcluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Defaults of the spec.
const (
	defaultReplicas      = 3
	defaultQuota         = 2 << 30
	largeQuota           = 8 << 30 // the maximum that etcd recommends
	defaultVolume        = "8Gi"
	defaultSnapshotCount = 10000
	// maxRequestBytes is larger than the limit of Kubernetes API servers for requests.
	maxRequestBytes = 16 << 20
)

// ElectionArguments returns the arguments that determine how long members wait for a leader that does not answer: in Raft, one to two
// election timeouts. With the default of etcd, 1000 ms, a new leader is elected after up to two seconds. 600 ms are six heartbeats, longer
// than members in one region need to answer, and longer than a write on a disk that is suitable for etcd.
func ElectionArguments() []string {
	return []string{"--heartbeat-interval=100", "--election-timeout=600"}
}

func replicas(cluster *v1alpha1.EtcdCluster) int {
	if cluster.Spec.Replicas != nil {
		return int(*cluster.Spec.Replicas)
	}
	return defaultReplicas
}

func quota(cluster *v1alpha1.EtcdCluster) int64 {
	if cluster.Spec.QuotaBackendBytes != nil {
		return *cluster.Spec.QuotaBackendBytes
	}
	return defaultQuota
}

func volumeSize(cluster *v1alpha1.EtcdCluster) resource.Quantity {
	if s := cluster.Spec.Storage; s != nil && s.Size != nil {
		return *s.Size
	}
	return resource.MustParse(defaultVolume)
}

// compaction returns the mode and the retention as arguments of etcd.
func compaction(cluster *v1alpha1.EtcdCluster) (mode, retention string) {
	mode, retention = "periodic", "5m"
	c := cluster.Spec.Compaction
	if c == nil {
		return mode, retention
	}
	if c.Mode == "Revision" {
		mode, retention = "revision", "1000"
	}
	if c.Retention != "" {
		retention = c.Retention
	}
	return mode, retention
}

// arguments returns the arguments of a member; those of cmd/etcd-member come first. They are the same for all members, and do not depend on
// their number: members differ in the names of their pods, and in the start annotations of pods with empty volumes.
func arguments(cluster *v1alpha1.EtcdCluster) []string {
	mode, retention := compaction(cluster)
	snapshots := int64(defaultSnapshotCount)
	if cluster.Spec.SnapshotCount != nil {
		snapshots = *cluster.Spec.SnapshotCount
	}
	host := memberHost(cluster, "$(POD_NAME)")
	return append([]string{
		"-data-dir=" + dataDirectory(cluster), "-start-file=" + startMount + "/" + startFile,
		fmt.Sprintf("-waiting-address=0.0.0.0:%d", MetricsPort), "--",
		"--name=$(POD_NAME)",
		fmt.Sprintf("--listen-peer-urls=https://0.0.0.0:%d", PeerPort),
		fmt.Sprintf("--initial-advertise-peer-urls=https://%s:%d", host, PeerPort),
		fmt.Sprintf("--listen-client-urls=https://0.0.0.0:%d", ClientPort),
		fmt.Sprintf("--advertise-client-urls=https://%s:%d", host, ClientPort),
		// On a listener that serves only gRPC, a member that stops completes its requests.
		fmt.Sprintf("--listen-client-http-urls=https://127.0.0.1:%d", httpPort),
		fmt.Sprintf("--listen-metrics-urls=http://0.0.0.0:%d", MetricsPort),
		"--client-cert-auth=true",
		"--cert-file=" + serverMount + "/tls.crt", "--key-file=" + serverMount + "/tls.key",
		"--trusted-ca-file=" + trustMount + "/" + TrustedClients,
		"--peer-client-cert-auth=true",
		"--peer-cert-file=" + peerMount + "/tls.crt", "--peer-key-file=" + peerMount + "/tls.key",
		"--peer-trusted-ca-file=" + trustMount + "/" + trustedPeers,
		// A certificate of the peer authority identifies a peer. Checking its address in DNS would prove nothing more, and would fail for a
		// while after a pod has moved.
		"--peer-skip-client-san-verification=true",
		"--enable-grpc-gateway=false",
		"--auto-compaction-mode=" + mode, "--auto-compaction-retention=" + retention,
		fmt.Sprintf("--quota-backend-bytes=%d", quota(cluster)),
		fmt.Sprintf("--snapshot-count=%d", snapshots),
		fmt.Sprintf("--max-request-bytes=%d", maxRequestBytes),
		"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
		"--watch-progress-notify-interval=5s",
	}, ElectionArguments()...)
}
