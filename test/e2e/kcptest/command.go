package kcptest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Command is a program with the configuration to reach one cluster as one user.
type Command struct {
	program string
	env     []string
	stdin   string
	limit   time.Duration
}

// Kubectl runs kubectl in the cluster as system:masters, and returns its output. The test fails if kubectl fails.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return c.Command(t, "kubectl", Masters).Run(t, args...)
}

// Apply runs kubectl apply -f - with manifest as its input, and with further arguments.
func (c *Cluster) Apply(t testing.TB, manifest string, args ...string) string {
	t.Helper()
	return c.Command(t, "kubectl", Masters).Input(manifest).Run(t, append([]string{"apply", "-f", "-"}, args...)...)
}

// Helm runs helm in the cluster as system:masters, and returns its output. The test fails if helm fails.
func (c *Cluster) Helm(t testing.TB, args ...string) string {
	t.Helper()
	return c.Command(t, "helm", Masters).Run(t, args...)
}

// Command returns kubectl or helm for user. Its caches are in a temporary directory of the test.
func (c *Cluster) Command(t testing.TB, program string, user User) Command {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c.WriteKubeconfig(t, kubeconfig, user)
	return CommandAt(t, program, kubeconfig)
}

// CommandAt returns a program for the cluster and the user of a kubeconfig. Its caches are in a temporary directory of the test.
func CommandAt(t testing.TB, program, kubeconfig string) Command {
	t.Helper()
	path, err := Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	return Command{program: path, env: append(environment(), "HOME="+home, "KUBECONFIG="+kubeconfig), limit: 4 * Timeout}
}

// WriteKubeconfig writes a kubeconfig of user for the cluster.
func (c *Cluster) WriteKubeconfig(t testing.TB, file string, user User) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.server.base.CAData}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: user.Token}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
}

// WithPlugins returns the command with the kubectl plugins of this repository in its PATH, under all their names.
func (c Command) WithPlugins(t testing.TB) Command {
	t.Helper()
	program, err := Binary("kubectl-kcp")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, prefix := range []string{"kubectl-", "kubectl_complete-"} {
		for _, plugin := range []string{"kcp", "ws", "workspace", "create-workspace"} {
			if err := os.Symlink(program, filepath.Join(dir, prefix+plugin)); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := strings.Join([]string{dir, filepath.Dir(program), os.Getenv("PATH")}, string(os.PathListSeparator))
	c.env = append(slices.Clone(c.env), "PATH="+path)
	return c
}

// Environment returns the environment variables of the command, for programs that run it.
func (c Command) Environment() []string { return slices.Clone(c.env) }

// Input returns the command with text as its standard input.
func (c Command) Input(text string) Command {
	c.stdin = text
	return c
}

// Within returns the command with a time limit other than that of Context.
func (c Command) Within(limit time.Duration) Command {
	c.limit = limit
	return c
}

// Run returns the standard output of the command. The test fails if the command fails.
func (c Command) Run(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.run(t, args)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", c.describe(args), err, stdout, stderr)
	}
	return stdout
}

// Fail returns the standard error of the command. The test fails if the command succeeds.
func (c Command) Fail(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.run(t, args)
	if err == nil {
		t.Fatalf("%s succeeded, want an error:\n%s%s", c.describe(args), stdout, stderr)
	}
	return stderr
}

// Try returns the standard output of the command, even if it fails.
func (c Command) Try(t testing.TB, args ...string) string {
	t.Helper()
	stdout, _, _ := c.run(t, args)
	return stdout
}

func (c Command) run(t testing.TB, args []string) (string, string, error) {
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), c.limit)
	defer cancel()
	command := exec.CommandContext(ctx, c.program, args...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = c.env, strings.NewReader(c.stdin), &stdout, &stderr
	err := command.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("timed out after %s: %w", c.limit, err)
	}
	return stdout.String(), stderr.String(), err
}

func (c Command) describe(args []string) string {
	return fmt.Sprintf("%s %s", filepath.Base(c.program), strings.Join(args, " "))
}

// environment returns the environment of the tests without variables that affect clients.
func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == "HOME" || strings.HasPrefix(name, "KUBE") || strings.HasPrefix(name, "HELM_") || strings.HasPrefix(name, "XDG_") ||
			strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			continue
		}
		env = append(env, variable)
	}
	return env
}
