//go:build production

package sharded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// production is what config/samples/production.yaml has, with the etcds.
var production = []string{
	"cacheserver/cache", "rootshard/kcp", "shard/east", "shard/west", "frontproxy/public", "kubeconfig.operator.kcp.io/administrator",
	"etcdcluster/cache-etcd", "etcdcluster/kcp-etcd", "etcdcluster/east-etcd", "etcdcluster/west-etcd",
	"etcdbackupschedule/kcp-nightly", "etcdbackupschedule/east-nightly", "etcdbackupschedule/west-nightly",
}

// This takes minutes, because 12 members of etcd and 11 pods of kcp start: make e2e-production runs it.
func TestTheProductionExampleIsAppliedAndUsed(t *testing.T) {
	monitors := ""
	for _, file := range kcptest.PrometheusOperator.Files(t, 1) {
		if strings.HasSuffix(file, "_servicemonitors.yaml") {
			monitors = "--filename=" + file
		}
	}
	kcptest.CommandAt(t, "kubectl", host.Kubeconfig).Run(t, "apply", "--server-side", monitors)
	n := &installation{Installation: host.Installation(t)}
	t.Cleanup(func() { n.Show("delete", monitors) })
	n.RemoveAfter(t)
	n.Manifest(t, "production/secrets.yaml")
	n.Ready(t, "certificate/company")

	begun := time.Now()
	n.Kubectl(t, "apply", "--server-side", "--kustomize="+kustomization(t))
	n.Kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=9m"}, production...)...)
	t.Logf("the production example is Ready after %.0f s", time.Since(begun).Seconds())
	for _, part := range production[:5] {
		n.complete(t, part)
	}
	n.Service, n.port, n.kubeconfig = "public-front-proxy", "443", n.Kubeconfig(t, "administrator-kubeconfig")
	n.spread(t)
	for _, shard := range []string{"root", "east", "west"} {
		n.kcp(t, "root:"+shard, "create", "configmap", "used", "--from-literal=shard="+shard)
		if got := n.kcp(t, "root:"+shard, "get", "configmap", "used", "--output=jsonpath={.data.shard}"); got != shard {
			t.Errorf("on shard %s, the object has %q", shard, got)
		}
	}
	n.share(t)
}

// kustomization returns a directory with the example and the changes for the host cluster.
func kustomization(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for _, file := range []string{hosttest.Root + "config/samples/production.yaml", "testdata/production/kustomization.yaml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, filepath.Base(file)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// complete checks that a component of the example has ready pods, at least two, and what the example enables.
func (n *installation) complete(t *testing.T, part string) {
	t.Helper()
	_, name, _ := strings.Cut(part, "/")
	selector := "--selector=app.kubernetes.io/component!=etcd,app.kubernetes.io/instance=" + name
	if ready := strings.Fields(n.Kubectl(t, "get", "pods", selector,
		`--output=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)); strings.Count(strings.Join(ready, " "), "True") < 2 {
		t.Errorf("%s has the pods %v", part, ready)
	}
	for _, kind := range []string{"servicemonitors.monitoring.coreos.com", "networkpolicies", "poddisruptionbudgets"} {
		if n.Kubectl(t, "get", kind, selector, "--output=name") == "" {
			t.Errorf("%s has none of %s", part, kind)
		}
	}
}
