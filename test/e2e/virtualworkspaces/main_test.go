// Package virtualworkspaces tests that a virtual workspace that is written with the public packages of this module works beside a server,
// and isolates tenants.
package virtualworkspaces

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"context"
	"net/http"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.Main(m, &server)
}

const repository = "../../.."

// build builds the example as a separate module, as an author in another repository would, and returns its path.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kcp-notes-")
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(repository)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "docs", "examples", "notes"))); err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	text := strings.Replace(string(mod), "module github.com/kcplane/kcp\n", "module example.org/notes\n", 1)
	text = strings.ReplaceAll(text, "=> ./", "=> "+root+"/")
	text += fmt.Sprintf("\nrequire github.com/kcplane/kcp v0.0.0\nreplace github.com/kcplane/kcp => %s\n", root)
	for name, content := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	command := exec.Command("go", "build", "-mod=mod", "-buildvcs=false", "-o", "notes", ".")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the example: %w\n%s", err, out)
	}
	return filepath.Join(dir, "notes"), nil
})

// notes is a running example.
type notes struct{ url, ca string }

// start runs the example with the permissions of a kubeconfig, until the test ends.
func start(t *testing.T, kubeconfig string) notes {
	t.Helper()
	n, dir := reserve(t), t.TempDir()
	n.ca = filepath.Join(dir, "virtual-workspaces.crt")
	n.run(t, kubeconfig, "--cert-dir="+dir)
	return n
}

// reserve returns an example that is not running yet.
func reserve(t *testing.T) notes {
	t.Helper()
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return notes{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
}

// run runs the example with the permissions of a kubeconfig, and with flags for the certificate of n, until the test ends.
func (n notes) run(t *testing.T, kubeconfig string, flags ...string) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	_, port, _ := strings.Cut(strings.TrimPrefix(n.url, "https://"), ":")
	command := exec.Command(program, append(flags, "--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port="+port)...)
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil || t.Failed() {
			t.Errorf("the example exited with %v:\n%s", err, log.String())
		}
	})
	kcptest.Eventually(t, "the example is ready", func(ctx context.Context) error {
		code, _, err := n.request(ctx, kcptest.Anonymous, http.MethodGet, "/readyz", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz returned %d", code)
		}
		return err
	})
}

func (n notes) config(user kcptest.User, cluster string) *rest.Config {
	return &rest.Config{
		Host: n.url + "/services/notes/clusters/" + cluster, BearerToken: user.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: n.ca},
	}
}

// request sends a request that client libraries would not send.
func (n notes) request(ctx context.Context, user kcptest.User, method, path string, header http.Header) (int, string, error) {
	// The example writes its certificate when it starts. client-go would keep an incomplete file for minutes, so the file is read here.
	ca, err := os.ReadFile(n.ca)
	if err != nil {
		return 0, "", err
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, method, n.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	if header != nil {
		r.Header = header.Clone()
	}
	if user.Token != "" {
		r.Header.Set("Authorization", "Bearer "+user.Token)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	return response.StatusCode, body.String(), err
}

// in returns a client for the notes of a logical cluster, or of all.
func (n notes) in(t *testing.T, user kcptest.User, cluster string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(n.config(user, cluster))
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource)
}

// kubectl returns a function that runs kubectl with the notes of a cluster.
func (n notes) kubectl(t *testing.T, user kcptest.User, cluster *kcptest.Cluster) func(stdin string, args ...string) string {
	t.Helper()
	command := cluster.Command(t, "kubectl", user)
	return func(stdin string, args ...string) string {
		t.Helper()
		return command.Input(stdin).Run(t, append([]string{"--server=" + n.url + "/services/notes/clusters/" + cluster.Name, "--certificate-authority=" + n.ca}, args...)...)
	}
}
