package compatibility

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// kubectlPrune applies a directory, and prunes objects that were removed from it.
func kubectlPrune(t *testing.T, w workspace) {
	kubectl, manifests := w.Command(t, "kubectl", w.account), t.TempDir()
	apply := []string{"apply", "--filename=" + manifests, "--prune", "--selector=app=shop", "--namespace=default"}
	for _, name := range []string{"apple", "pear"} {
		labelled := strings.Replace(configMap(name, "1"), "name: "+name, "name: "+name+", labels: {app: shop}", 1)
		if err := os.WriteFile(filepath.Join(manifests, name+".yaml"), []byte(labelled), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The documentation mentions the default list, which contains kinds that workspaces do not serve.
	if refusal := kubectl.Fail(t, apply...); !strings.Contains(refusal, "no matches for kind") {
		t.Errorf("without a list of kinds: %s", refusal)
	}
	apply = append(apply, "--prune-allowlist=core/v1/ConfigMap")
	kubectl.Run(t, apply...)
	awaitPrice(t, w, "apple", "1")
	awaitPrice(t, w, "pear", "1")
	if err := os.Remove(filepath.Join(manifests, "pear.yaml")); err != nil {
		t.Fatal(err)
	}
	kubectl.Run(t, apply...)
	awaitPrice(t, w, "apple", "1")
	w.Command(t, "kubectl", kcptest.Masters).Fail(t, "get", "configmap", "pear")
}
