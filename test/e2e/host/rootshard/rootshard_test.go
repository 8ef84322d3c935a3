// Package rootshard tests on a real Kubernetes that the operator creates a working kcp, which keeps working while its parts are deleted
// and replaced. The tests share one operator, and most of them one kcp with a managed etcd. They run in the order of the files; those
// that delete kcp come last.
package rootshard

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host, remove) }

// installed is a namespace that the operator manages.
type installed struct {
	*hosttest.Installation
}

// shared is the namespace of the kcp with a managed etcd. It is nil until a test needs it.
var shared *installed

// remove deletes what the tests share.
func remove() error {
	if shared == nil {
		return nil
	}
	return shared.Remove()
}

// install returns the namespace that the tests share, with the operator running.
func install(t *testing.T) *installed {
	t.Helper()
	if shared == nil {
		shared = namespace(t)
	}
	shared.Explain(t)
	return shared
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
