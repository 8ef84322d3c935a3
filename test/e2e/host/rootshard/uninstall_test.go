package rootshard

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

func (n *installed) outlivesOperator(t *testing.T, client kubernetes.Interface) {
	guest := n.guest(t, "guest")
	n.Undisturbed(t, client, hosttest.Disturbance{Name: "the operator is uninstalled, and installed again", By: func() {
		n.untouched(t, "installing again", func() {
			n.Operator.Uninstall(t)
			n.remains(t)
			n.Kubectl(t, "delete", "kubeconfig", "guest", "--timeout=1m")
			n.Operator.Upgrade(t, "next")
			n.forbids(t, guest)
			n.Kubectl(t, "wait", "--for=delete", "secret/kubeconfig-cert-guest", "--timeout=1m")
			n.guest(t, "after-uninstall")
			n.Ready(t, "rootshard/kcp", "etcdcluster/kcp-etcd", "kubeconfig/admin")
		})
	}})
	t.Run("a namespace without operator and kcp can be deleted", func(t *testing.T) {
		n.Operator.Uninstall(t)
		n.Kubectl(t, "scale", "statefulset", "kcp-etcd", "--replicas=0")
		n.Kubectl(t, "wait", "--for=delete", "pod/kcp-etcd-0", "pod/kcp-etcd-1", "pod/kcp-etcd-2", "--timeout=3m")
		n.deleted(t)
	})
}

// remains checks that the objects of the operator exist after it is uninstalled.
func (n *installed) remains(t *testing.T) {
	t.Helper()
	n.Kubectl(t, "get", "rootshard/kcp", "etcdcluster/kcp-etcd", "kubeconfig/admin", "secret/admin-kubeconfig", "statefulset/kcp-kcp",
		"statefulset/kcp-etcd", "pvc/data-kcp-etcd-0", "pvc/data-kcp-etcd-1", "pvc/data-kcp-etcd-2")
	definitions := n.Kubectl(t, "get", "crds", "--output=name")
	for _, kind := range []string{"rootshards", "kubeconfigs", "etcdclusters", "etcdbackups", "etcdbackupschedules"} {
		if !strings.Contains(definitions, kind+".operator.kcp.io") {
			t.Errorf("the definition of %s is missing in\n%s", kind, definitions)
		}
	}
}
