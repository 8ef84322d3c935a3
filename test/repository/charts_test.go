package repository

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestAllChartsHaveOneVersion(t *testing.T) {
	type versions struct{ Version, AppVersion string }
	charts := map[versions][]string{}
	for _, name := range files(t, "charts/*/Chart.yaml") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		var chart versions
		if err := yaml.Unmarshal(content, &chart); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if chart.AppVersion != "v"+chart.Version {
			t.Errorf("%s: version %s has the appVersion %s", name, chart.Version, chart.AppVersion)
		}
		charts[chart] = append(charts[chart], name)
	}
	if len(charts) != 1 {
		t.Errorf("a release has one version, and the charts have several: %v", charts)
	}
}
