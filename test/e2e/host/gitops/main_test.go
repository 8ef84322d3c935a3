//go:build gitops

package gitops

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

// page is the documentation whose examples the tests follow.
const page = hosttest.Root + "docs/operator.md"

// manifest returns the installation of the tests.
func manifest(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("testdata/installation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// runs waits until all pods of the operator are of the current Deployment, and checks their image.
func runs(t *testing.T, operator *hosttest.Namespace, image string) {
	t.Helper()
	operator.Kubectl(t, "rollout", "status", "deployment/kcp-operator", "--timeout=4m")
	got := operator.Kubectl(t, "get", "deployment", "kcp-operator", "--output=jsonpath={.spec.template.spec.containers[0].image}")
	if got != image {
		t.Errorf("the operator has the image %s, not %s", got, image)
	}
}

// removeDefinitions deletes the definitions that other tests have left. They are newer than those of the former operator, and Argo CD keeps
// the fields of other managers.
func removeDefinitions(t *testing.T) {
	t.Helper()
	kubectl := kcptest.CommandAt(t, "kubectl", host.Kubeconfig)
	for name := range strings.FieldsSeq(kubectl.Run(t, "get", "crds", "--output=name")) {
		if strings.HasSuffix(name, ".operator.kcp.io") {
			kubectl.Run(t, "delete", name, "--timeout=1m")
		}
	}
}

// directory returns the path of something that make e2e-gitops puts beside the programs.
func directory(t *testing.T, name string) string {
	t.Helper()
	path, err := kcptest.Binary(filepath.Join("host", name))
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin starts a program that listens at an address, and ends it with the test. It shows the end of its log if the test fails.
func begin(t *testing.T, name, address, program string, args ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), name+".log")
	process, err := kcptest.BeginProcess(name, log, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		if !t.Failed() {
			return
		}
		content, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		t.Logf("the last lines of the log of %s:\n%s", name, content[max(0, len(content)-12000):])
	})
	if err := process.AwaitReady(func() error {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

// example returns the manifest in the documentation that contains a text, with pairs of texts replaced.
func example(t *testing.T, containing string, replace ...string) string {
	t.Helper()
	for _, block := range kcptest.Blocks(t, page) {
		if block.Info != "yaml" || !strings.Contains(block.Text, containing) {
			continue
		}
		for i := 0; i < len(replace); i += 2 {
			if !strings.Contains(block.Text, replace[i]) {
				t.Fatalf("the example with %q in %s does not contain %q", containing, page, replace[i])
			}
		}
		return strings.NewReplacer(replace...).Replace(block.Text)
	}
	t.Fatalf("%s has no example with %q", page, containing)
	return ""
}

// changed returns a manifest after changes.
func changed(t *testing.T, manifest []byte, change func(object map[string]any)) string {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		t.Fatal(err)
	}
	change(object)
	content, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
