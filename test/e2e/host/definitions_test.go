package host

import (
	"strings"
	"testing"
)

// Without --server-side, kubectl stores the manifest in an annotation, whose size limit large definitions exceed.
func TestDefinitionsOfOperatorApplyWithoutServerSide(t *testing.T) {
	n := host.Namespace(t)
	n.Kubectl(t, "apply", "--filename=../../../config/crd/bases")
	n.Kubectl(t, "wait", "--for=condition=Established", "--timeout=1m", "crd/etcdclusters.operator.kcp.io",
		"crd/kubeconfigs.operator.kcp.io", "crd/rootshards.operator.kcp.io")
	n.Kubectl(t, "apply", "--dry-run=server", "--filename=../../../config/samples")
	n.Kubectl(t, "apply", "--filename=../../../config/samples/rootshard.yaml")
	if shown := n.Kubectl(t, "get", "rootshards"); !strings.Contains(shown, "HOSTNAME") || !strings.Contains(shown, "kcp.example.com") {
		t.Errorf("got:\n%s", shown)
	}
	if described := n.Kubectl(t, "explain", "rootshard.spec.etcd.managed"); !strings.Contains(described, "requests a dedicated etcd") {
		t.Errorf("unexpected output of kubectl explain:\n%s", described)
	}
}
