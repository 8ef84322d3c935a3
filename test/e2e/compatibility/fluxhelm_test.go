package compatibility

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	helmCharts   = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "helmcharts"}
	helmReleases = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
)

const helmRelease = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: shop, namespace: default}
spec: {chart: shop, interval: 1h, sourceRef: {kind: HelmRepository, name: shop}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: shop, namespace: default}
spec:
  interval: 1h
  releaseName: fruit
  targetNamespace: market
  install: {createNamespace: true}
  chartRef: {kind: HelmChart, name: shop}
  values: {price: 1}
`

// helmController installs a chart, upgrades it when values change, and uninstalls it.
func helmController(t *testing.T, w workspace) {
	startFlux(t, w, "helm-controller")
	w.Apply(t, helmRelease)
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(chart), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path.Join(chart, name))
		files["shop/"+name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	kcptest.NewArtifacts(t).Publish(t, w.Dynamic(t, w.account), helmCharts, "shop", "1.0.0", files)
	price := func(want string) {
		t.Helper()
		awaitReady(t, w, helmReleases, "shop", "")
		if got := w.Kubectl(t, "get", "configmap/fruit-prices", "--namespace=market", "--output=jsonpath={.data.apple}"); got != want {
			t.Errorf("got price %q, want %q", got, want)
		}
	}
	price("1")
	w.Kubectl(t, "patch", "helmrelease", "shop", "--type=merge", `--patch={"spec":{"values":{"price":2}}}`)
	price("2")
	w.Kubectl(t, "delete", "helmrelease", "shop", "--timeout=60s")
	kcptest.Eventually(t, "the release is uninstalled", func(context.Context) error {
		if left := w.Kubectl(t, "get", "configmap", "--namespace=market", "--output=name", "--ignore-not-found", "fruit-prices"); left != "" {
			return fmt.Errorf("remaining objects: %s", left)
		}
		return nil
	})
}
