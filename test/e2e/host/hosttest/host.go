// Package hosttest gives tests the real Kubernetes that make host-up starts, because a fake one has no pods to lose, no
// volumes to fill and no certificates to wait for.
package hosttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Host is the host cluster.
type Host struct {
	program string
	// Kubeconfig is the file of its administrator.
	Kubeconfig string
}

// Main runs the tests of a package with the host cluster. A cluster that ran before goes on after them. Packages take turns.
func Main(m *testing.M, host **Host) {
	os.Exit(run(m, host))
}

func run(m *testing.M, host **Host) int {
	program, err := kcptest.Binary("kcp-host")
	if err != nil {
		return failed(err)
	}
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "kcp-host-tests.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return failed(err)
	}
	defer turn.Close()
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return failed(err)
	}
	h := &Host{program: program}
	ran := exec.Command(program, "exec", "true").Run() == nil
	if err := h.Up(); err != nil {
		return failed(err)
	}
	kubeconfig, err := exec.Command(program, "kubeconfig").Output()
	if err != nil {
		return failed(err)
	}
	h.Kubeconfig = strings.TrimSpace(string(kubeconfig))
	*host = h
	code := m.Run()
	if !ran {
		if err := exec.Command(program, "down").Run(); err != nil {
			return failed(err)
		}
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Up does what make host-up does.
func (h *Host) Up() error {
	out, err := exec.Command(h.program, "up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// Load packs static binaries (FILE=/PATH) into an image that starts command, and gives it to the node.
func (h *Host) Load(t testing.TB, reference, command string, files ...string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	pack, err := kcptest.Binary("image")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-o", archive, "-user", "65532", "-image", reference + "=" + command}, files...)
	for _, cmd := range []*exec.Cmd{exec.Command(pack, args...), exec.Command(h.program, "load", archive)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
}

// Exec runs a command on the node, and returns what it printed.
func (h *Host) Exec(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(h.program, append([]string{"exec"}, args...)...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(bytes.TrimSpace(out))
}

// Namespace is one namespace of the host cluster.
type Namespace struct {
	Name string
	host *Host
}

// Namespace creates a namespace that nobody else uses, and that is deleted after the test.
func (h *Host) Namespace(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{host: h}
	kubectl := kcptest.CommandAt(t, "kubectl", h.Kubeconfig)
	name := kubectl.Input("apiVersion: v1\nkind: Namespace\nmetadata: {generateName: test-}\n").
		Run(t, "create", "--filename=-", "--output=name")
	n.Name = strings.TrimPrefix(strings.TrimSpace(name), "namespace/")
	t.Cleanup(func() { n.remove(t) })
	return n
}

// remove deletes the namespace, also when the context of the test has ended.
func (n *Namespace) remove(t testing.TB) {
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kubectl, "--kubeconfig="+n.host.Kubeconfig, "delete", "namespace", n.Name, "--wait=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// Kubectl runs kubectl in the namespace, and returns what it printed.
func (n *Namespace) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return strings.TrimSpace(kcptest.CommandAt(t, "kubectl", n.host.Kubeconfig).Run(t, append([]string{"--namespace=" + n.Name}, args...)...))
}

// Apply applies a manifest in the namespace.
func (n *Namespace) Apply(t testing.TB, manifest string) {
	t.Helper()
	kcptest.CommandAt(t, "kubectl", n.host.Kubeconfig).Input(manifest).Run(t, "--namespace="+n.Name, "apply", "--filename=-")
}

// Build builds a static binary from a package of the repository, with further flags of go build, and returns its file.
func Build(ctx context.Context, t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", file}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return file
}
