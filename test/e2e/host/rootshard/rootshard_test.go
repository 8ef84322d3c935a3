// Package rootshard tests on a real Kubernetes that the operator creates a working kcp, which keeps working while its parts are deleted
// and replaced. The tests share one operator. Those of different kcps run at the same time, because they wait most of the time.
package rootshard

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

// installed is a namespace that the operator manages.
type installed struct {
	*hosttest.Installation
}

func TestRootShards(t *testing.T) {
	managed := namespace(t)
	managed.Namespace.RemoveAfter(t)
	t.Run("with the operator", func(t *testing.T) {
		t.Run("a kcp with a managed etcd", func(t *testing.T) {
			t.Parallel()
			managed.Explain(t)
			client, kubeconfig := managed.made(t, "managed.yaml")
			t.Run("stays available", func(t *testing.T) { managed.staysAvailable(t, client) })
			config := managed.Config(t, kubeconfig, "root:team")
			t.Run("rotates the key of service accounts", func(t *testing.T) { managed.rotateServiceAccounts(t, client, config) })
			t.Run("rotates authorities", func(t *testing.T) { managed.rotateAuthorities(t, kubeconfig) })
		})
		t.Run("beside it", func(t *testing.T) { // for about the same time
			t.Parallel()
			t.Run("an etcd survives the loss and the replacement of members", etcdSurvivesLossAndReplacementOfMembers)
			t.Run("an etcd recovers from one member and takes a snapshot", etcdRecoversFromOneMemberAndTakesSnapshot)
			t.Run("a kcp with an external etcd is created and deleted", kcpWithExternalEtcdIsCreatedAndDeleted)
			t.Run("an etcd refuses other certificates of its issuer", etcdRefusesOtherCertificatesOfItsIssuer)
		})
	})
	t.Run("a kcp outlives the operator and is deleted without it", func(t *testing.T) {
		managed.Explain(t)
		client, _ := managed.made(t, "managed.yaml")
		managed.outlivesOperator(t, client)
	})
}

// namespace returns a new namespace, with the operator running.
func namespace(t *testing.T) *installed {
	t.Helper()
	return &installed{host.Installation(t)}
}

// made applies a file of testdata, and returns a client for a workspace of the new kcp, and its kubeconfig.
func (n *installed) made(t *testing.T, file string) (kubernetes.Interface, string) {
	t.Helper()
	n.Manifest(t, file)
	return n.used(t)
}

// used waits until kcp can be used, and returns a client for a workspace, and its kubeconfig.
func (n *installed) used(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	n.Ready(t, "rootshard/kcp", "kubeconfig/admin")
	kubeconfig := n.Kubeconfig(t, "admin-kubeconfig")
	host.OnNode(t, kubeconfig, "create", "workspace", "team", "--ignore-existing")
	if tree := host.OnNode(t, kubeconfig, "ws", "tree"); !strings.Contains(tree, "root") || !strings.Contains(tree, "team") {
		t.Errorf("unexpected output of kubectl ws tree:\n%s", tree)
	}
	return n.Client(t, kubeconfig, "root:team"), kubeconfig
}
