// Package hosttest provides tests with the Kubernetes cluster of make host-up. A fake one would have no pods, no volumes and no
// certificates.
package hosttest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Host is the host cluster.
type Host struct {
	program string
	// number is the value of KCP_HOST.
	number string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	installing sync.Mutex
	operator   *Release // nil until a test needs it
}

// Main runs the tests of a package with the host cluster, and then the functions in after. It does not stop a cluster that ran before.
// Packages use a cluster in turn.
func Main(m *testing.M, host **Host, after ...func() error) {
	os.Exit(run(m, host, after))
}

func run(m *testing.M, host **Host, after []func() error) int {
	h, release, err := start(os.Getenv("KCP_HOST"), false)
	if err != nil {
		return failed(err)
	}
	*host = h
	code := m.Run()
	if h.operator != nil {
		after = append(after, h.operator.Remove)
	}
	for _, do := range after {
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := release(); err != nil {
		return failed(err)
	}
	return code
}

// Fresh starts an empty cluster with a number for one test, instead of one that runs already, and removes it when the test ends.
func Fresh(t testing.TB, number string) *Host {
	t.Helper()
	h, release, err := start(number, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// start waits for its turn and starts a cluster, or replaces one that runs already. release removes a cluster that did not run before.
func start(number string, fresh bool) (h *Host, release func() error, err error) {
	program, err := kcptest.Binary("kcp-host")
	if err != nil {
		return nil, nil, err
	}
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "kcp-host-tests"+number+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = turn.Close()
		}
	}()
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return nil, nil, err
	}
	h = &Host{program: program, number: number}
	if fresh {
		if err := h.Down(); err != nil {
			return nil, nil, err
		}
	}
	ran := h.command("exec", "true").Run() == nil
	if err := h.Up(); err != nil {
		return nil, nil, err
	}
	kubeconfig, err := h.command("kubeconfig").Output()
	h.Kubeconfig = strings.TrimSpace(string(kubeconfig))
	return h, func() (err error) {
		defer turn.Close()
		if !ran {
			err = h.Down()
		}
		return err
	}, err
}

// command runs kcp-host.
func (h *Host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.program, args...)
	cmd.Env = append(os.Environ(), "KCP_HOST="+h.number)
	return cmd
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Up does the same as make host-up.
func (h *Host) Up() error {
	out, err := h.command("up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// Down does the same as make host-down: it kills all processes of the cluster, and removes its data.
func (h *Host) Down() error { return h.command("down").Run() }

// Address is the address of this machine for the pods of the cluster.
func (h *Host) Address() string { return "10.250." + cmp.Or(h.number, "0") + ".1" }

// Load packs static binaries (FILE=/PATH) into an image with a command, and imports it into the node.
func (h *Host) Load(t testing.TB, reference, command string, files ...string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	pack, err := kcptest.Binary("image")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-o", archive, "-user", "65532", "-image", reference + "=" + command}, files...)
	for _, cmd := range []*exec.Cmd{exec.Command(pack, args...), h.command("load", archive)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
}

// Exec runs a command on the node, and returns its output.
func (h *Host) Exec(t testing.TB, args ...string) string {
	t.Helper()
	out, err := h.command(append([]string{"exec"}, args...)...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(bytes.TrimSpace(out))
}

// Namespace is a namespace of the host cluster.
type Namespace struct {
	Name string
	host *Host
}

// Namespace creates a namespace for one test, and deletes it when the test ends.
func (h *Host) Namespace(t testing.TB) *Namespace {
	t.Helper()
	n := h.NewNamespace(t)
	n.RemoveAfter(t)
	return n
}

// Existing returns a namespace that exists already, or that another program creates.
func (h *Host) Existing(name string) *Namespace { return &Namespace{Name: name, host: h} }

// NewNamespace creates a namespace for one test, and does not delete it.
func (h *Host) NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	kubectl := kcptest.CommandAt(t, "kubectl", h.Kubeconfig)
	name := kubectl.Input("apiVersion: v1\nkind: Namespace\nmetadata: {generateName: test-}\n").
		Run(t, "create", "--filename=-", "--output=name")
	return &Namespace{Name: strings.TrimPrefix(strings.TrimSpace(name), "namespace/"), host: h}
}

// RemoveAfter starts the deletion of the namespace when the test ends.
func (n *Namespace) RemoveAfter(t testing.TB) {
	t.Cleanup(func() {
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// Remove starts the deletion of the namespace if it exists. It works after the context of a test has ended.
func (n *Namespace) Remove() error {
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		return err
	}
	cmd := exec.Command(kubectl, "--kubeconfig="+n.host.Kubeconfig, "delete", "namespace", n.Name, "--wait=false", "--ignore-not-found")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}

// longest limits the time of a command.
const longest = 10 * time.Minute

// Kubectl runs kubectl in the namespace, and returns its output.
func (n *Namespace) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	args = append([]string{"--namespace=" + n.Name}, args...)
	return strings.TrimSpace(kcptest.CommandAt(t, "kubectl", n.host.Kubeconfig).Within(longest).Run(t, args...))
}

// Show returns the output of kubectl, or its error. It works after the context of a test has ended.
func (n *Namespace) Show(args ...string) string {
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		return err.Error()
	}
	all := append([]string{"--kubeconfig=" + n.host.Kubeconfig, "--namespace=" + n.Name, "--request-timeout=20s"}, args...)
	out, err := exec.Command(kubectl, all...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Secret returns the value of a key of a Secret in the namespace.
func (n *Namespace) Secret(t testing.TB, name, key string) []byte {
	t.Helper()
	encoded := n.Kubectl(t, "get", "secret", name, "--output=jsonpath={.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Pair returns the certificate and the key in a Secret of the namespace.
func (n *Namespace) Pair(t testing.TB, secret string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(n.Secret(t, secret, "tls.crt"), n.Secret(t, secret, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Apply applies a manifest in the namespace.
func (n *Namespace) Apply(t testing.TB, manifest string) {
	t.Helper()
	kcptest.CommandAt(t, "kubectl", n.host.Kubeconfig).Input(manifest).Run(t, "--namespace="+n.Name, "apply", "--filename=-")
}

// Kill kills the process of a pod's only container with SIGKILL, and waits until the pod is ready again.
func (n *Namespace) Kill(t testing.TB, pod string) {
	t.Helper()
	status := strings.Fields(n.Kubectl(t, "get", "pod", pod,
		"--output=jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}"))
	if len(status) != 2 {
		t.Fatalf("pod %s does not have exactly one container: %v", pod, status)
	}
	restarts, err := strconv.Atoi(status[1])
	if err != nil {
		t.Fatal(err)
	}
	n.host.Exec(t, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", strings.TrimPrefix(status[0], "containerd://"))
	n.Kubectl(t, "wait", fmt.Sprintf("--for=jsonpath={.status.containerStatuses[0].restartCount}=%d", restarts+1), "pod/"+pod, "--timeout=2m")
	n.Kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=5m")
}

// Replace deletes a pod, and waits until a new one is ready.
func (n *Namespace) Replace(t testing.TB, pod string) {
	t.Helper()
	n.Kubectl(t, "delete", "pod", pod)
	n.Runs(t, pod)
}

// Runs waits until a pod with that name exists and is ready.
func (n *Namespace) Runs(t testing.TB, pod string) {
	t.Helper()
	n.Kubectl(t, "wait", "--for=create", "pod/"+pod, "--timeout=1m")
	n.Kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=5m")
}

// Build builds a static binary from a package of the repository, with additional flags of go build, and returns its path.
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
