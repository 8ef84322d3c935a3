//go:build gitops

package gitops

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// repository is a bare Git repository, and a working copy of it.
type repository struct{ bare, copy string }

func newRepository(t *testing.T) repository {
	t.Helper()
	dir := t.TempDir()
	r := repository{filepath.Join(dir, "platform.git"), filepath.Join(dir, "platform")}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for _, args := range [][]string{{"init", "--quiet", "--bare", "--initial-branch=main", r.bare}, {"clone", "--quiet", r.bare, r.copy}} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	r.git(t, "config", "user.name", "test")
	r.git(t, "config", "user.email", "test@example.com")
	return r
}

func (r repository) url() string { return "file://" + r.bare }

func (r repository) git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", r.copy}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes a file.
func (r repository) write(t *testing.T, file, content string) {
	t.Helper()
	file = filepath.Join(r.copy, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// push commits all files, and returns the commit.
func (r repository) push(t *testing.T, message string) string {
	t.Helper()
	r.git(t, "add", "--all")
	r.git(t, "commit", "--quiet", "--message="+message)
	r.git(t, "push", "--quiet", "origin", "HEAD:main")
	return r.git(t, "rev-parse", "HEAD")
}

// argoCD is the namespace with Argo CD's configuration and Applications. Its programs run beside the cluster.
type argoCD struct{ *hosttest.Namespace }

// startArgoCD runs Argo CD with the settings of its manifests, and with the health checks of this repository as the documentation says.
func startArgoCD(t *testing.T) argoCD {
	t.Helper()
	kubectl := kcptest.CommandAt(t, "kubectl", host.Kubeconfig)
	source := directory(t, "argocd-source")
	kubectl.Run(t, "apply", "--server-side", "--kustomize="+filepath.Join(source, "manifests/crds"))
	kubectl.Input("apiVersion: v1\nkind: Namespace\nmetadata: {name: argocd}\n").Run(t, "apply", "--filename=-")
	argo := argoCD{host.Existing("argocd")}
	argo.RemoveAfter(t)
	argo.Kubectl(t, "apply", "--kustomize="+filepath.Join(source, "manifests/base/config"))
	argo.Kubectl(t, "wait", "--for=condition=Established", "crd/applications.argoproj.io", "crd/appprojects.argoproj.io")
	argo.Apply(t, defaultProject)
	argo.Kubectl(t, "apply", "--server-side", "--kustomize="+hosttest.Root+"config/argocd")

	helm, err := kcptest.Binary("helm")
	if err != nil {
		t.Fatal(err)
	}
	home, scripts := t.TempDir(), t.TempDir()
	// Argo CD calls git and gpg by its own scripts. Files in modules are not executable.
	for _, name := range []string{"git-verify-wrapper.sh", "gpg-wrapper.sh"} {
		script, err := os.ReadFile(filepath.Join(source, "hack", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(scripts, name), script, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"KUBECONFIG": host.Kubeconfig, "ARGOCD_FAKE_IN_CLUSTER": "true", "ARGOCD_GPG_ENABLED": "false", "HOME": home, "TMPDIR": home,
		"ARGOCD_ASK_PASS_SOCK": filepath.Join(home, "ask-pass.sock"), "KUBE_CACHE_MUTATION_DETECTOR": "false",
		"ARGOCD_TLS_DATA_PATH": home, "ARGOCD_SSH_DATA_PATH": home,
		"PATH": strings.Join([]string{filepath.Dir(helm), scripts, os.Getenv("PATH")}, ":"),
	} {
		t.Setenv(name, value)
	}
	redis, repoServer, metrics := address(t), address(t), address(t)
	begin(t, "redis", redis, program, "redis", "--address="+redis)
	begin(t, "repo-server", repoServer, program, "argocd-repo-server", "--redis="+redis, "--disable-tls", "--client-ca-path=",
		"--address=127.0.0.1", "--port="+port(repoServer), "--metrics-address=127.0.0.1", "--metrics-port="+port(address(t)))
	begin(t, "application-controller", metrics, program, "argocd-application-controller", "--namespace=argocd", "--redis="+redis,
		"--repo-server="+repoServer, "--repo-server-plaintext", "--metrics-port="+port(metrics), "--persist-resource-health")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(argo.Show("get", "applications", "--output=yaml"))
		}
	})
	return argo
}

const program = "host/argocd"

// defaultProject is what Argo CD's API server, which the tests do not run, creates when it starts.
const defaultProject = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default}
spec:
  sourceRepos: ["*"]
  destinations: [{namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

// address returns an address that nothing listens at.
func address(t *testing.T) string {
	t.Helper()
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func port(address string) string { return strings.TrimPrefix(address, "127.0.0.1:") }

// synced waits until Argo CD has applied a commit.
func (a argoCD) synced(t *testing.T, application, commit string) {
	t.Helper()
	a.Kubectl(t, "annotate", "application", application, "argocd.argoproj.io/refresh=hard", "--overwrite")
	for _, condition := range []string{"{.status.sync.revision}=" + commit, "{.status.sync.status}=Synced"} {
		a.Kubectl(t, "wait", "application/"+application, "--for=jsonpath="+condition, "--timeout=6m")
	}
}

// applied waits until Argo CD has applied a commit of the former version, and reports that it is Healthy. It is never Synced: the schema of
// a definition has an empty description, which the API server removes.
func (a argoCD) applied(t *testing.T, application, commit string) {
	t.Helper()
	for _, condition := range []string{"{.status.operationState.syncResult.revision}=" + commit, "{.status.operationState.phase}=Succeeded",
		"{.status.health.status}=Healthy"} {
		a.Kubectl(t, "wait", "application/"+application, "--for=jsonpath="+condition, "--timeout=6m")
	}
}

// health waits until Argo CD reports a health, and checks that the application is still synced. Argo CD would notice only after minutes that
// a new definition is established.
func (a argoCD) health(t *testing.T, application, health string) {
	t.Helper()
	a.Kubectl(t, "annotate", "application", application, "argocd.argoproj.io/refresh=normal", "--overwrite")
	a.Kubectl(t, "wait", "application/"+application, "--for=jsonpath={.status.health.status}="+health, "--timeout=8m")
	if got := a.Kubectl(t, "get", "application", application, "--output=jsonpath={.status.sync.status}"); got != "Synced" {
		t.Errorf("%s is %s and %s", application, health, got)
	}
}

// install creates the Application of this repository for the operator, with the chart in another one and local images.
func (a argoCD) install(t *testing.T, r repository) {
	t.Helper()
	manifest, err := os.ReadFile(hosttest.Root + "config/argocd/application.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a.Apply(t, changed(t, manifest, func(object map[string]any) {
		for field, value := range map[string]string{"repoURL": r.url(), "targetRevision": "main"} {
			if err := unstructured.SetNestedField(object, value, "spec", "source", field); err != nil {
				t.Fatal(err)
			}
		}
		// The tag of the operator's image is the appVersion of the chart, as in a release.
		for value, content := range map[string]any{"image": map[string]any{"repository": "localhost/kcp-operator"},
			"kcpImage": "localhost/kcp:unused", "etcdRepository": "localhost/etcd"} {
			if err := unstructured.SetNestedField(object, content, "spec", "source", "helm", "valuesObject", value); err != nil {
				t.Fatal(err)
			}
		}
	}))
}

// chart replaces the chart of the operator in the repository, with images of a tag.
func (r repository) chart(t *testing.T, source, tag string) {
	t.Helper()
	chart := filepath.Join(r.copy, "charts/kcp-operator")
	if err := errors.Join(os.RemoveAll(chart), os.CopyFS(chart, os.DirFS(source))); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "charts/kcp-operator/Chart.yaml", changed(t, content, func(object map[string]any) { object["appVersion"] = tag }))
}

func TestArgoCDUpgradesTheFormerOperatorAndAnInstallation(t *testing.T) {
	removeDefinitions(t)
	host.LoadFormerImages(t)
	r := newRepository(t)
	r.chart(t, hosttest.Former(t, "charts/kcp-operator"), hosttest.FormerTag)
	installation := manifest(t)
	const file = "installations/kcp/installation.yaml"
	r.write(t, file, hosttest.FormerManifest(t, installation))
	first := r.push(t, "operator: install the former version, with a root shard")
	argo := startArgoCD(t)

	argo.install(t, r)
	operator := host.Existing("kcp-operator")
	operator.RemoveAfter(t)
	argo.applied(t, "kcp-operator", first)
	kcp := host.ExistingInstallation("kcp", operator)
	kcp.RemoveAfter(t)
	argo.Apply(t, example(t, "path: installations/kcp", "https://git.example.com/platform", r.url()))
	argo.synced(t, "kcp", first)
	argo.health(t, "kcp", "Healthy")

	kcp.UpgradeFormer(t, "the operator is upgraded from the former version with Argo CD", func() {
		host.LoadImages(t)
		r.chart(t, hosttest.Root+"charts/kcp-operator", "test")
		argo.synced(t, "kcp-operator", r.push(t, "operator: upgrade"))
		argo.health(t, "kcp-operator", "Healthy")
		runs(t, operator, "localhost/kcp-operator:test")
	})
	t.Run("a commit adds the components that the former operator does not have", func(t *testing.T) {
		r.write(t, file, hosttest.FormerImage(installation))
		argo.synced(t, "kcp", r.push(t, "kcp: add a shard and a front proxy"))
		kcp.Ready(t, "rootshard/kcp", "shard/east", "frontproxy/public", "kubeconfig/admin")
		argo.health(t, "kcp", "Healthy")
	})
	t.Run("a commit upgrades it", func(t *testing.T) {
		r.write(t, file, installation)
		argo.synced(t, "kcp", r.push(t, "kcp: upgrade"))
		kcp.Kubectl(t, "wait", "rootshard/kcp", "shard/east", "frontproxy/public", "--for=jsonpath={.status.image}=localhost/kcp:test",
			"--timeout=8m")
		argo.health(t, "kcp", "Healthy")
	})
	t.Run("a mistake is Degraded, with the message of the operator, until a commit corrects it", func(t *testing.T) {
		argo.reportsMistake(t, r, kcp, file)
	})
	t.Run("deleting the Application deletes the installation in order", func(t *testing.T) {
		argo.Kubectl(t, "patch", "application", "kcp", "--type=merge",
			`--patch={"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
		argo.Kubectl(t, "delete", "application", "kcp", "--timeout=6m")
		if left := kcp.Kubectl(t, "get", "rootshards,shards,frontproxies,kubeconfigs", "--output=name"); left != "" {
			t.Errorf("the namespace has %s", left)
		}
	})
}

// reportsMistake adds a mistake to a file with the installation, and removes it.
func (a argoCD) reportsMistake(t *testing.T, r repository, kcp *hosttest.Installation, file string) {
	r.write(t, file, manifest(t)+mistake)
	a.synced(t, "kcp", r.push(t, "kcp: add a kubeconfig"))
	a.health(t, "kcp", "Degraded")
	got := a.Kubectl(t, "get", "application", "kcp", `--output=jsonpath={.status.resources[?(@.name=="mistake")].health.message}`)
	want := kcp.Kubectl(t, "get", "kubeconfig", "mistake", `--output=jsonpath={.status.conditions[?(@.type=="Stalled")].message}`)
	if got != want || !strings.Contains(got, "nowhere") {
		t.Errorf("Argo CD says %q, and the operator says %q", got, want)
	}
	r.write(t, file, manifest(t))
	a.synced(t, "kcp", r.push(t, "kcp: remove the kubeconfig"))
	a.health(t, "kcp", "Healthy")
	if left := kcp.Kubectl(t, "get", "kubeconfigs", "--output=name"); left != "kubeconfig.operator.kcp.io/admin" {
		t.Errorf("the namespace has %s", left)
	}
}

// mistake is a Kubeconfig for a front proxy that does not exist.
const mistake = `
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: mistake}
spec:
  target: {frontProxyRef: {name: nowhere}}
  username: alice
  validity: 24h
  secretRef: {name: mistake-kubeconfig}
`
