// Package operator tests that one command creates a working kcp from a clone of the repository, on a real Kubernetes.
package operator

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const root = "../../../../"

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

// printed returns the commands that a program prints for users: lines that are indented by two spaces, by paragraph.
func printed(text string) []string {
	var all []string
	paragraph := ""
	lines := bufio.NewScanner(strings.NewReader(text + "\n\n"))
	for lines.Scan() {
		if command, ok := strings.CutPrefix(lines.Text(), "  "); ok && !strings.HasPrefix(command, " ") {
			paragraph += command + "\n"
		} else if paragraph != "" && lines.Text() != "" {
			all, paragraph = append(all, paragraph), ""
		}
	}
	if paragraph != "" {
		all = append(all, paragraph)
	}
	return all
}

func TestOneCommandCreatesKCPFromClone(t *testing.T) {
	program, err := kcptest.Binary("kcp-host")
	if err != nil {
		t.Fatal(err)
	}
	if program, err = filepath.Abs(program); err != nil {
		t.Fatal(err)
	}
	helm := func(args ...string) string {
		t.Helper()
		return kcptest.CommandAt(t, "helm", host.Kubeconfig).Run(t, append(args, "--namespace=kcp-operator")...)
	}
	kubectl := kcptest.CommandAt(t, "kubectl", host.Kubeconfig)
	t.Cleanup(func() { // for a user who started the cluster before
		for _, args := range [][]string{{"delete", "kubeconfigs,rootshards", "--all"}, {"delete", "namespace", "kcp-operator"}} {
			_ = exec.Command(filepath.Join(filepath.Dir(program), "kubectl"), append(args, "--kubeconfig="+host.Kubeconfig)...).Run()
		}
	})
	var out, log bytes.Buffer
	build := exec.CommandContext(t.Context(), "make", "--silent", "host-operator", "BIN="+filepath.Dir(program))
	build.Dir, build.Stdout, build.Stderr = root, &out, &log
	if err := build.Run(); err != nil {
		t.Fatalf("make host-operator: %v\n%s%s", err, &out, &log)
	}
	_, next, _ := strings.Cut(out.String(), "kcp is ready.")
	paragraphs := printed(next)
	if len(paragraphs) != 2 {
		t.Fatalf("got the commands %q in\n%s", paragraphs, &out)
	}
	for i, want := range []string{`Current workspace is "root:team-a"`, "rootshard.operator.kcp.io/kcp"} {
		shell := exec.CommandContext(t.Context(), "sh", "-euc", paragraphs[i])
		shell.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		if said, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(said), want) {
			t.Errorf("%s: %v\n%s", paragraphs[i], err, said)
		}
	}

	// An image that does not exist is reported.
	image := kubectl.Run(t, "get", "deployment", "kcp-operator", "--namespace=kcp-operator", "--output=jsonpath={.spec.template.spec.containers[0].image}")
	helm("uninstall", "kcp-operator", "--wait")
	helm("install", "kcp-operator", root+"charts/kcp-operator", "--set=image.repository=localhost/nothing,image.tag=v9,testImage="+image)
	helmProgram, err := kcptest.Binary("helm")
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), helmProgram, "test", "kcp-operator", "--logs", "--timeout=3m", "--namespace=kcp-operator",
		"--kubeconfig="+host.Kubeconfig).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "localhost/nothing:v9") || !strings.Contains(string(said), "correct image.repository and image.tag") {
		t.Errorf("helm test: %v\n%s", err, said)
	}
}
