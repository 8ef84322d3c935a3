package definitions

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(content(t, file), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// onlyAbout fails the test if a finding does not contain tolerated.
func onlyAbout(t *testing.T, tolerated, findings string) {
	t.Helper()
	for line := range strings.Lines(findings) {
		if !strings.Contains(line, tolerated) {
			t.Errorf("unexpected difference: %s", line)
		}
	}
}

// TestVersionsOfProjectsAreCompared compares two versions of each definition of a project, and their least common denominator.
func TestVersionsOfProjectsAreCompared(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	command := cluster.Command(t, "kubectl-kcp", kcptest.Masters)
	for _, project := range []kcptest.Project{kcptest.CertManager, kcptest.PrometheusOperator} {
		var report strings.Builder
		newer := map[string]string{}
		for _, file := range project.Files(t, 1) {
			newer[filepath.Base(file)] = file
		}
		for _, file := range project.Files(t, 0) {
			fmt.Fprintf(&report, "# %s\n", filepath.Base(file))
			findings := command.Try(t, "crd", "compat", file, newer[filepath.Base(file)])
			report.WriteString(findings)
			if strings.Contains("\n"+findings, "\n!") {
				command.Fail(t, "crd", "compat", "--lcd", file, newer[filepath.Base(file)])
				continue
			}
			lcd := filepath.Join(t.TempDir(), "lcd.yaml")
			if err := os.WriteFile(lcd, []byte(command.Run(t, "crd", "compat", "--lcd", file, newer[filepath.Base(file)])), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, of := range []string{file, newer[filepath.Base(file)]} {
				onlyAbout(t, ": default ", command.Try(t, "crd", "compat", lcd, of)) // objects contain defaults explicitly
			}
			cluster.Kubectl(t, "apply", "--server-side", "--filename="+lcd)
		}
		golden(t, project.Name+".txt", report.String())
	}
}

// TestDefinitionsOfProjectsBecomeSchemas stores schemas of the definitions where an APIExport can use them.
func TestDefinitionsOfProjectsBecomeSchemas(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	command := cluster.Command(t, "kubectl-kcp", kcptest.Masters)
	for _, row := range []struct {
		project kcptest.Project
		small   string
	}{
		{kcptest.CertManager, "certificaterequests.cert-manager.io"},
		{kcptest.PrometheusOperator, "prometheusrules.monitoring.coreos.com"},
	} {
		arguments := []string{"crd", "snapshot", "--prefix=today"}
		for _, file := range row.project.Files(t, 1) {
			arguments = append(arguments, "--filename="+file)
			if nameOf(t, file) == row.small {
				golden(t, row.small+".yaml", command.Run(t, "crd", "snapshot", "--prefix=v1", "--filename="+file))
			}
		}
		cluster.Apply(t, command.Run(t, arguments...), "--server-side")
		if stored := cluster.Kubectl(t, "get", "apiresourceschemas", "--output=name"); !strings.Contains(stored, "/today."+row.small) {
			t.Errorf("got schemas\n%s", stored)
		}
	}
}
