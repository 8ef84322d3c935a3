package etcdcluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// What a spec that says nothing asks for.
const (
	defaultReplicas      = 3
	defaultQuota         = 2 << 30
	largeQuota           = 8 << 30 // up to which etcd is tried
	defaultVolume        = "8Gi"
	defaultSnapshotCount = 10000
	// What Kubernetes' API servers accept of a client is smaller.
	maxRequestBytes = 16 << 20
)

// ElectionArguments returns the arguments that decide how long members wait for a silent leader: one to two election timeouts, by
// Raft. With etcd's own 1000 ms the others go on after up to two seconds; 600 ms are six heartbeats, longer than members in one region
// need to answer, and longer than a disk that is fit for etcd takes to write.
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

// compaction returns the mode and the retention, in etcd's words.
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

// arguments of a member, first those of cmd/etcd-member. They are the same for all members, whatever their number is: what they
// differ in is in the name of the pod, and in what a pod with an empty volume is told.
func arguments(cluster *v1alpha1.EtcdCluster) []string {
	mode, retention := compaction(cluster)
	snapshots := int64(defaultSnapshotCount)
	if cluster.Spec.SnapshotCount != nil {
		snapshots = *cluster.Spec.SnapshotCount
	}
	host := memberHost(cluster, "$(POD_NAME)")
	return append([]string{
		"-data-dir=" + dataDirectory(cluster), "-start-file=" + toldMount + "/" + toldFile,
		fmt.Sprintf("-waiting-address=0.0.0.0:%d", MetricsPort), "--",
		"--name=$(POD_NAME)",
		fmt.Sprintf("--listen-peer-urls=https://0.0.0.0:%d", PeerPort),
		fmt.Sprintf("--initial-advertise-peer-urls=https://%s:%d", host, PeerPort),
		fmt.Sprintf("--listen-client-urls=https://0.0.0.0:%d", ClientPort),
		fmt.Sprintf("--advertise-client-urls=https://%s:%d", host, ClientPort),
		// Where nothing but gRPC is served, a member that stops lets requests come to their end.
		fmt.Sprintf("--listen-client-http-urls=https://127.0.0.1:%d", httpPort),
		fmt.Sprintf("--listen-metrics-urls=http://0.0.0.0:%d", MetricsPort),
		"--client-cert-auth=true",
		"--cert-file=" + serverMount + "/tls.crt", "--key-file=" + serverMount + "/tls.key",
		"--trusted-ca-file=" + trustMount + "/" + TrustedClients,
		"--peer-client-cert-auth=true",
		"--peer-cert-file=" + peerMount + "/tls.crt", "--peer-key-file=" + peerMount + "/tls.key",
		"--peer-trusted-ca-file=" + trustMount + "/" + trustedPeers,
		// Whoever has a certificate of the peers' own authority is a peer. That its address is the one that DNS knows is no
		// proof of more, and not true for a while after a pod has moved.
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
