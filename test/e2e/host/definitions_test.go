package host

import (
	"strings"
	"testing"
)

// Without --server-side kubectl writes all that it applies into an annotation, which has a limit that large definitions pass.
func TestTheOperatorsKindsApply(t *testing.T) {
	n := host.Namespace(t)
	n.Kubectl(t, "apply", "--filename=../../../config/crd/bases")
	n.Kubectl(t, "wait", "--for=condition=Established", "--timeout=1m", "crd/etcdclusters.operator.kcp.io",
		"crd/kubeconfigs.operator.kcp.io", "crd/rootshards.operator.kcp.io")
	n.Kubectl(t, "apply", "--dry-run=server", "--filename=../../../config/samples")
	n.Kubectl(t, "apply", "--filename=../../../config/samples/rootshard.yaml")
	if shown := n.Kubectl(t, "get", "rootshards"); !strings.Contains(shown, "HOSTNAME") || !strings.Contains(shown, "kcp.example.com") {
		t.Errorf("kubectl shows:\n%s", shown)
	}
	if described := n.Kubectl(t, "explain", "rootshard.spec.etcd.managed"); !strings.Contains(described, "asks for an etcd of one's own") {
		t.Errorf("kubectl explains:\n%s", described)
	}
}
