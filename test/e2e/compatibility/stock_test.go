package compatibility

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	root = "../../.."
	page = root + "/docs/compatibility.md"
)

var update = flag.Bool("update", false, "write the table of the page after all programs succeeded")

// software is a third-party program or library.
type software struct {
	name string
	// module is the module of the software, which go.mod or package.json in directory requires.
	module, directory string
	// job describes what run does with the software. settings are the settings that it needs for that.
	job, settings string
	// always is true if every run of the tests includes the software. KCP_COMPATIBILITY=all includes the rest.
	always bool
	run    func(*testing.T, workspace)
}

var stock = []software{
	{
		name: "cert-manager, controller", module: "github.com/cert-manager/cert-manager", directory: "test/host/pods", always: true, run: certManager,
		job:      "a self-signed and a CA issuer sign certificates; a changed certificate is signed again",
		settings: "the controllers for issuers, certificates and certificate requests; see [below](#cert-manager)",
	},
	{
		name: "cert-manager, cainjector", module: "github.com/cert-manager/cert-manager", directory: "test/host/pods", always: true, run: caInjector,
		job:      "the CA of a certificate is injected into a ValidatingWebhookConfiguration",
		settings: "`--enable-apiservices-injectable=false`",
	},
	{
		name: "Flux, kustomize-controller", module: "github.com/fluxcd/kustomize-controller", directory: "test/compatibility", always: true, run: kustomizeController,
		job: "a Kustomization applies an artifact, waits for it, corrects drift, prunes objects that a later artifact does not contain, and prunes all objects when it is deleted",
	},
	{
		name: "Flux, helm-controller", module: "github.com/fluxcd/helm-controller", directory: "test/compatibility", run: helmController,
		job: "a HelmRelease installs a chart with a CustomResourceDefinition, upgrades it when its values change, and uninstalls it when it is deleted",
	},
	{
		name: "gitops-engine, agent", module: "github.com/argoproj/argo-cd/gitops-engine", directory: "test/argocd", run: gitopsEngine,
		job: "the engine applies commits, corrects drift and prunes removed objects; it watches every kind of the workspace",
	},
	{
		name: "kube-controller-manager, CSR controllers", module: "k8s.io/kubernetes", directory: "test/host/node", run: csrControllers,
		job:      "the certificate request of a kubelet is approved and signed",
		settings: "`--controllers` with the CSR controllers only; see [below](#kube-controller-manager)",
	},
	{
		name: "JavaScript client", module: "@kubernetes/client-node", directory: "test/compatibility/javascript", run: javascriptClient,
		job: "list, watch, every kind of patch and server-side apply of a ConfigMap; definitions and custom resources",
	},
	{
		name: "kubectl apply --prune", module: "k8s.io/kubernetes", directory: "test/tools", always: true, run: kubectlPrune,
		job:      "objects that were removed from a directory are pruned",
		settings: "`--prune-allowlist`; see [below](#kubectl-apply---prune)",
	},
	{
		name: "Helm 3", module: "helm.sh/helm/v3", directory: "test/compatibility", always: true, run: helm("helm3"),
		job: "install, upgrade, roll back and uninstall a chart with a CustomResourceDefinition, with `--wait`",
	},
	{
		name: "Helm 4", module: "helm.sh/helm/v4", directory: "test/tools", always: true, run: helm("helm"),
		job: "install, upgrade, roll back and uninstall a chart with a CustomResourceDefinition, with `--wait`",
	},
}

func TestThirdPartySoftwareRunsInWorkspace(t *testing.T) {
	all := os.Getenv("KCP_COMPATIBILITY") == "all"
	if *update && !all {
		t.Fatal("-update requires runs of all programs: set KCP_COMPATIBILITY=all")
	}
	good := t.Run("software", func(t *testing.T) {
		for _, s := range stock {
			if s.always || all {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.run(t, newWorkspace(t))
				})
			}
		}
	})
	if *update && good {
		before, _, after := splitPage(t)
		if err := os.WriteFile(page, []byte(before+table(t)+after), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompatibilityPageIsUpToDate(t *testing.T) {
	if _, shown, _ := splitPage(t); shown != table(t) {
		t.Errorf("docs/compatibility.md is stale: run make compatibility. Difference (-page +programs):\n%s", cmp.Diff(shown, table(t)))
	}
}

// table returns the table of the page.
func table(t *testing.T) string {
	t.Helper()
	lines := []string{"| software | version | what it does in a workspace | settings |", "|---|---|---|---|"}
	for _, s := range stock {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |", s.name, s.version(t), s.job, s.settings))
	}
	return strings.Join(lines, "\n") + "\n"
}

// version returns the version that go.mod or package.json requires.
func (s software) version(t *testing.T) string {
	t.Helper()
	if content, err := os.ReadFile(filepath.Join(root, s.directory, "package.json")); err == nil {
		var packages struct{ Dependencies map[string]string }
		if err := json.Unmarshal(content, &packages); err != nil {
			t.Fatal(err)
		}
		return packages.Dependencies[s.module]
	}
	command := exec.Command("go", "mod", "edit", "-json")
	command.Dir = filepath.Join(root, s.directory)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Path == s.module {
			return r.Version
		}
	}
	t.Fatalf("%s/go.mod does not require %s", s.directory, s.module)
	return ""
}

// moduleFile returns the path of a file or directory of a module that the go.mod in directory requires.
func moduleFile(t *testing.T, directory, module, name string) string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = filepath.Join(root, directory)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	dir, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return filepath.Join(strings.TrimSpace(string(dir)), name)
}

// splitPage returns the page before, in and after its table of software.
func splitPage(t *testing.T) (before, within, after string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table: begin -->\n", "<!-- table: end -->\n"
	before, rest, found := strings.Cut(string(content), begin)
	within, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no markers for the table", page)
	}
	return before + begin, within, end + after
}
