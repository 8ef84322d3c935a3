// Package compatibility runs unmodified third-party software in workspaces, at the versions in the go.mod files.
package compatibility

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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by all programs. Each program has its own workspace in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

// workspace is the workspace of a program, which runs as a service account with all permissions there.
type workspace struct {
	*kcptest.Cluster
	// account is the service account.
	account kcptest.User
	// kubeconfig is the path of the program's kubeconfig.
	kubeconfig string
}

func newWorkspace(t *testing.T) workspace {
	t.Helper()
	cluster := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("stock-"+kcptest.Suffix(), "", ""))
	cluster.Kubectl(t, "create", "serviceaccount", "stock", "--namespace=default")
	cluster.Kubectl(t, "create", "clusterrolebinding", "stock", "--clusterrole=cluster-admin", "--serviceaccount=default:stock")
	token := strings.TrimSpace(cluster.Kubectl(t, "create", "token", "stock", "--namespace=default"))
	w := workspace{cluster, kcptest.User{Name: "system:serviceaccount:default:stock", Token: token}, filepath.Join(t.TempDir(), "kubeconfig")}
	cluster.WriteKubeconfig(t, w.kubeconfig, w.account)
	return w
}

// start runs a program until the test ends. If the program exits before, the test fails. If the test fails, it shows the program's log.
func (w workspace) start(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	binary, err := kcptest.Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, args...)
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	command.Env = append([]string{"KUBECONFIG=" + w.kubeconfig, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}, env...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		select {
		case <-ended:
			t.Errorf("%s exited early: %s", program, command.ProcessState)
		default:
			_ = command.Process.Signal(syscall.SIGTERM)
		}
		select {
		case <-ended:
		case <-time.After(kcptest.Timeout):
			_ = command.Process.Kill()
			<-ended
		}
		_ = log.Close()
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			lines := bytes.Split(content, []byte("\n"))
			t.Logf("the last lines of the log of %s:\n%s", program, bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
		}
	})
}

// configMap returns the manifest of a ConfigMap with a price.
func configMap(name, price string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {price: \"" + price + "\"}\n"
}

// awaitPrice waits until a ConfigMap has a price.
func awaitPrice(t *testing.T, w workspace, name, want string) {
	t.Helper()
	kcptest.Eventually(t, "the price of "+name+" is "+want, func(ctx context.Context) error {
		found, err := w.Kube(t, w.account).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && found.Data["price"] != want {
			err = fmt.Errorf("got %q", found.Data["price"])
		}
		return err
	})
}

// awaitGone waits until a ConfigMap is deleted.
func awaitGone(t *testing.T, w workspace, name string) {
	t.Helper()
	kcptest.Eventually(t, name+" is pruned", func(ctx context.Context) error {
		if _, err := w.Kube(t, w.account).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %v", err)
		}
		return nil
	})
}
