package ecosystem

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestHelmInstallsUpgradesAndRollsBackInEachCluster(t *testing.T) {
	t.Parallel()
	ours, theirs := server.Cluster(t), server.Cluster(t)
	price := func(cluster *kcptest.Cluster, want string) {
		t.Helper()
		for _, from := range [][2]string{{"configmap/fruit-prices", "{.data.apple}"}, {"counter/fruit", "{.spec.price}"}} {
			if got := cluster.Kubectl(t, "get", from[0], "--namespace=market", "--output=jsonpath="+from[1]); got != want {
				t.Errorf("%s in %s: got %q, want %q", from[0], cluster.Name, got, want)
			}
		}
	}
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		c.Helm(t, "install", "fruit", "testdata/shop", "--namespace=market", "--create-namespace", "--wait", "--timeout=60s")
		price(c, "1")
	}
	ours.Helm(t, "upgrade", "fruit", "testdata/shop", "--namespace=market", "--set=price=2,secrets=true", "--wait", "--timeout=60s")
	price(ours, "2")
	price(theirs, "1")
	ours.Kubectl(t, "get", "secret", "fruit-key", "--namespace=market")
	if out := ours.Helm(t, "history", "fruit", "--namespace=market"); !strings.Contains(out, "superseded") || !strings.Contains(out, "deployed") {
		t.Errorf("got history\n%s", out)
	}
	ours.Helm(t, "rollback", "fruit", "1", "--namespace=market", "--wait", "--timeout=60s")
	price(ours, "1")
	ours.Command(t, "kubectl", kcptest.Masters).Fail(t, "get", "secret", "fruit-key", "--namespace=market")
	ours.Helm(t, "uninstall", "fruit", "--namespace=market", "--wait", "--timeout=60s")
	ours.Command(t, "kubectl", kcptest.Masters).Fail(t, "get", "configmap", "fruit-prices", "--namespace=market")
	price(theirs, "1")
}
