//go:build gitops

package gitops

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/version"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	bundle   = hosttest.Root + "bundle"
	olmImage = "localhost/olm:test"
	// release is the former version, and successor that of this clone, with the names in the catalog. Both bundles say v0.1.0 until a version
	// is released.
	release   = "kcp-operator.v0.1.0"
	successor = "kcp-operator.v0.1.1"
)

// pinned returns a reference to a loaded image by its digest. The Operator Lifecycle Manager pulls all others.
func pinned(t *testing.T, reference string) string {
	t.Helper()
	fields := strings.Fields(host.Exec(t, "ctr", "--namespace", "k8s.io", "images", "list", "name=="+reference))
	for _, field := range fields {
		if strings.HasPrefix(field, "sha256:") {
			name := reference[:strings.LastIndex(reference, ":")] + "@" + field
			host.Exec(t, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", reference, name)
			return name
		}
	}
	t.Fatalf("the node has no image %s: %q", reference, fields)
	return ""
}

// startOLM installs the Operator Lifecycle Manager from its chart, without its API server for packages.
func startOLM(t *testing.T) {
	t.Helper()
	programs := directory(t, "olm")
	files := []string{}
	for program, path := range map[string]string{"olm": "/bin/olm", "catalog": "/bin/catalog", "opm": "/bin/opm", "cpb": "/bin/cpb",
		"copy-content": "/bin/copy-content", "cp": "/bin/cp", "grpc-health-probe": "/bin/grpc_health_probe"} {
		files = append(files, filepath.Join(programs, program)+"="+path)
	}
	host.Load(t, olmImage, "/bin/olm", files...)
	image := pinned(t, olmImage)
	chart := directory(t, "olm-chart")
	kubectl := kcptest.CommandAt(t, "kubectl", host.Kubeconfig)
	kubectl.Run(t, "apply", "--server-side", "--filename="+filepath.Join(chart, "crds"))
	kubectl.Run(t, "wait", "--for=condition=Established", "crd", "--selector=olm.managed!=nothing", "--timeout=1m")
	args := []string{"template", "olm", chart, "--set=namespace=olm,catalog_namespace=olm,operator_namespace=operators," +
		"olm.image.ref=" + image + ",olm.image.pullPolicy=IfNotPresent,catalog.image.ref=" + image +
		",catalog.image.pullPolicy=IfNotPresent,catalog.opmImageArgs=--opmImage=" + image}
	for _, part := range []string{"00-namespace", "02-olm-operator.serviceaccount", "03-olmconfig", "07-olm-operator.deployment",
		"08-catalog-operator.deployment", "09-aggregated.clusterrole", "13-operatorgroup-default"} {
		args = append(args, "--show-only=templates/0000_50_olm_"+part+".yaml")
	}
	kubectl.Input(kcptest.CommandAt(t, "helm", host.Kubeconfig).Run(t, args...)).Run(t, "apply", "--server-side", "--filename=-")
	olm := host.Existing("olm")
	olm.RemoveAfter(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "catalogsources,subscriptions,installplans,csv,pods", "--all-namespaces", "--output=wide"},
				{"get", "subscriptions", "--all-namespaces", "--output=yaml"}, {"logs", "deployment/catalog-operator", "--tail=40"},
				{"logs", "deployment/olm-operator", "--tail=40"}} {
				t.Log(olm.Show(args...))
			}
		}
	})
	olm.Kubectl(t, "wait", "--for=condition=Available", "deployment/olm-operator", "deployment/catalog-operator", "--timeout=4m")
}

// opm runs the program for catalogs, and returns its output.
func opm(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(directory(t, "olm"), "opm"), args...)
	var failure bytes.Buffer
	command.Stderr = &failure
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, &failure)
	}
	return out
}

// pack loads an image of a bundle, and returns the entry for it in a catalog.
func pack(t *testing.T, reference, bundle string) string {
	t.Helper()
	host.Load(t, reference, "", filepath.Join(bundle, "manifests")+"=/manifests", filepath.Join(bundle, "metadata")+"=/metadata")
	return changed(t, opm(t, "render", bundle, "--output=yaml"), func(entry map[string]any) { entry["image"] = pinned(t, reference) })
}

// catalog loads an image of a file-based catalog, and returns its reference.
func catalog(t *testing.T, reference string, entries []string, channel ...map[string]any) string {
	t.Helper()
	documents := entries
	for _, document := range []map[string]any{
		{"schema": "olm.package", "name": "kcp-operator", "defaultChannel": "candidate"},
		{"schema": "olm.channel", "package": "kcp-operator", "name": "candidate", "entries": channel},
	} {
		text, err := yaml.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	whole, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(whole, "catalog.yaml"), []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	// What is in the image of a bundle need not be in the catalog.
	text := opm(t, "render", whole, "--output=yaml", "--migrate-level=bundle-object-to-csv-metadata")
	if err := os.WriteFile(filepath.Join(dir, "catalog.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	opm(t, "validate", dir)
	host.Load(t, reference, "", dir+"=/configs")
	return pinned(t, reference)
}

// tag gives loaded images the names of a release, which a bundle has.
func tag(t *testing.T, loaded, release string) {
	t.Helper()
	for reference, name := range map[string]string{"kcp:" + loaded: "kcp:" + release, "kcp-operator:" + loaded: "kcp-operator:" + release,
		"etcd:v" + version.Version: "etcd:v" + version.Version} {
		host.Exec(t, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", "localhost/"+reference, "ghcr.io/kcplane/"+name)
	}
}

func TestOLMInstallsTheFormerOperatorFromACatalogAndUpgradesIt(t *testing.T) {
	removeDefinitions(t)
	host.LoadFormerImages(t)
	tag(t, hosttest.FormerTag, "v0.1.0")
	startOLM(t)
	first := pack(t, "localhost/kcp-operator-bundle:v0.1.0", hosttest.Former(t, "bundle"))
	source := catalog(t, "localhost/catalog:one", []string{first}, map[string]any{"name": release})
	operator := host.Existing("kcp-operator")
	operator.RemoveAfter(t)
	t.Cleanup(func() { // while the manager runs, which removes the finalizer
		operator.Show("delete", "subscriptions.operators.coreos.com,csv", "--all")
	})
	operator.Apply(t, example(t, "kind: CatalogSource", "registry.example.com/catalog:v1", source))
	installed(t, operator, release)

	kcp := host.ExistingInstallation("kcp", operator)
	kcp.RemoveAfter(t)
	kcptest.CommandAt(t, "kubectl", host.Kubeconfig).Run(t, "create", "namespace", kcp.Name)
	installation := manifest(t)
	kcp.Apply(t, hosttest.FormerManifest(t, installation))
	kcp.UpgradeFormer(t, "the operator is upgraded from the former version with the Operator Lifecycle Manager", func() {
		host.LoadImages(t)
		tag(t, "test", "v0.1.1")
		second := pack(t, "localhost/kcp-operator-bundle:v0.1.1", next(t))
		source := catalog(t, "localhost/catalog:two", []string{first, second},
			map[string]any{"name": release}, map[string]any{"name": successor, "replaces": release})
		operator.Kubectl(t, "patch", "catalogsource", "kcp", "--type=merge", `--patch={"spec":{"image":"`+source+`"}}`)
		installed(t, operator, successor)
		operator.Kubectl(t, "wait", "csv/"+release, "--for=delete", "--timeout=4m")
		runs(t, operator, "ghcr.io/kcplane/kcp-operator:v0.1.1")
	})
	t.Run("the installation gets the components that the former operator does not have, and is upgraded", func(t *testing.T) {
		for _, manifest := range []string{hosttest.FormerImage(installation), installation} {
			kcp.Apply(t, manifest)
			kcp.Ready(t, "rootshard/kcp", "shard/east", "frontproxy/public", "kubeconfig/admin")
		}
		kcp.Kubectl(t, "wait", "rootshard/kcp", "shard/east", "frontproxy/public", "--for=jsonpath={.status.image}=localhost/kcp:test",
			"--timeout=8m")
	})
}

// next returns a copy of the bundle of this clone as the next version.
func next(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(bundle)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "manifests/kcp-operator.clusterserviceversion.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(content, []byte("0.1.0"), []byte("0.1.1")), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// installed waits until a version of the operator is installed and runs.
func installed(t *testing.T, operator *hosttest.Namespace, version string) {
	t.Helper()
	operator.Kubectl(t, "wait", "subscription/kcp-operator", "--for=jsonpath={.status.installedCSV}="+version, "--timeout=6m")
	operator.Kubectl(t, "wait", "csv/"+version, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=4m")
}
