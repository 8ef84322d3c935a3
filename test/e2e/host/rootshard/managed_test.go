package rootshard

import (
	"testing"

	"github.com/kcplane/kcp/operator/etcdcluster"
	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

func TestAnEtcdOfItsOwnLosesMembersAndNoWrites(t *testing.T) {
	member := hosttest.Build(t.Context(), t, root+"operator/cmd/etcd-member")
	host.Load(t, "localhost/etcd:v"+etcdcluster.DefaultVersion, "/etcd", member+"=/etcd")
	n := install(t)
	client, _ := n.made(t, "managed.yaml")
	n.disturbed(t, client,
		disturbance{"a pod of etcd is deleted", func() {
			n.Kubectl(t, "delete", "pod", "kcp-etcd-0")
			n.Kubectl(t, "wait", "--for=create", "pod/kcp-etcd-0", "--timeout=1m")
			n.Kubectl(t, "wait", "--for=condition=Ready", "pod/kcp-etcd-0", "--timeout=3m")
			n.ready(t, "etcdcluster/kcp-etcd")
		}},
		disturbance{"a pod of kcp is deleted", func() {
			n.Kubectl(t, "delete", "pod", "kcp-kcp-1")
			n.Kubectl(t, "rollout", "status", "statefulset/kcp-kcp", "--timeout=5m")
		}},
	)
}
