package rootshard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const survivors = snapshots + `
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: events}
spec:
  deletionPolicy: Snapshot
  lastSnapshot: {volume: {claimName: snapshots}}
`

func etcdRecoversFromOneMemberAndTakesSnapshot(t *testing.T) {
	const theEtcd, ofTheEtcd = "etcdcluster/events", "app.kubernetes.io/instance=events,app.kubernetes.io/component=etcd"
	n := namespace(t)
	n.RemoveAfter(t)
	n.Apply(t, survivors)
	n.Ready(t, theEtcd)
	client := n.dial(t, "events-1")
	const writes = 100
	for i := range writes {
		if _, err := client.Put(t.Context(), fmt.Sprintf("/written/%d", i), "yes"); err != nil {
			t.Fatal(err)
		}
	}
	field := func(object, path string) string { return n.Kubectl(t, "get", object, "--output=jsonpath={"+path+"}") }
	cluster, volume := field(theEtcd, ".status.clusterID"), field("pvc/data-events-1", ".metadata.uid")

	n.Kubectl(t, "delete", "pvc", "data-events-0", "data-events-2", "--wait=false")
	n.Kubectl(t, "delete", "pod", "events-0", "events-2")
	n.Kubectl(t, "wait", "--for=condition=QuorumLost", theEtcd, "--timeout=3m")
	n.Kubectl(t, "wait", "--for=condition=Stalled", theEtcd, "--timeout=3m")
	begun := time.Now()
	n.Kubectl(t, "patch", theEtcd, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"restore":{"survivor":{"member":"events-1","clusterID":%q}}}}`, cluster))
	n.Kubectl(t, "wait", "--for=jsonpath={.status.recovery.state}=Done", theEtcd, "--timeout=5m")
	t.Logf("the recovery from one member took %.0f s", time.Since(begun).Seconds())
	n.Ready(t, theEtcd)
	if after := field(theEtcd, ".status.clusterID"); after == cluster {
		t.Errorf("the cluster ID is still %s", after)
	}
	if after := field("pvc/data-events-1", ".metadata.uid"); after != volume {
		t.Error("the volume of the surviving member is deleted")
	}
	for _, member := range []string{"events-0", "events-1", "events-2"} {
		got, err := n.dial(t, member).Get(t.Context(), "/written/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != writes {
			t.Errorf("%s has %v, %v, not %d", member, got, err, writes)
		}
	}

	n.Kubectl(t, "delete", theEtcd, "--timeout=5m")
	n.Kubectl(t, "wait", "--for=delete", "pvc", "--selector="+ofTheEtcd, "--timeout=3m")
	if key := n.Kubectl(t, "get", "etcdbackups", "--output=jsonpath={.items[*].status.snapshot.key}"); !strings.HasPrefix(key, n.Name+"/events/") {
		t.Errorf("the last snapshot is %q", key)
	}
	n.Kubectl(t, "delete", "etcdbackups", "--all", "--cascade=foreground", "--timeout=1m")
}

// dial returns a client of one member.
func (n *installed) dial(t *testing.T, member string) *clientv3.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(n.Secret(t, "events-client", "ca.crt"))
	address := n.Kubectl(t, "get", "pod", member, "--output=jsonpath={.status.podIP}")
	there := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, clientPort))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://localhost"}, // this name is in the certificate of every member
		TLS:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{n.Pair(t, "events-client")}, RootCAs: roots},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(there)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
