package compatibility

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const chart = "../ecosystem/testdata/shop"

// helm returns the job of a version of Helm: it manages a chart with a CustomResourceDefinition and one of its objects.
func helm(program string) func(*testing.T, workspace) {
	return func(t *testing.T, w workspace) {
		helm := w.Command(t, program, w.account)
		price := func(want string) {
			t.Helper()
			for _, from := range [][2]string{{"configmap/fruit-prices", "{.data.apple}"}, {"counter/fruit", "{.spec.price}"}} {
				if got := w.Kubectl(t, "get", from[0], "--namespace=market", "--output=jsonpath="+from[1]); got != want {
					t.Errorf("%s: got %q, want %q", from[0], got, want)
				}
			}
		}
		helm.Run(t, "install", "fruit", chart, "--namespace=market", "--create-namespace", "--wait", "--timeout=60s")
		price("1")
		helm.Run(t, "upgrade", "fruit", chart, "--namespace=market", "--set=price=2,secrets=true", "--wait", "--timeout=60s")
		price("2")
		w.Kubectl(t, "get", "secret", "fruit-key", "--namespace=market")
		helm.Run(t, "rollback", "fruit", "1", "--namespace=market", "--wait", "--timeout=60s")
		price("1")
		w.Command(t, "kubectl", kcptest.Masters).Fail(t, "get", "secret", "fruit-key", "--namespace=market")
		if history := helm.Run(t, "history", "fruit", "--namespace=market"); !strings.Contains(history, "Rollback to 1") {
			t.Errorf("got history\n%s", history)
		}
		helm.Run(t, "uninstall", "fruit", "--namespace=market", "--wait", "--timeout=60s")
		w.Command(t, "kubectl", kcptest.Masters).Fail(t, "get", "configmap", "fruit-prices", "--namespace=market")
	}
}
