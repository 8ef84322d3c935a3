package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// cluster is one of the clusters on this machine. The templates in files/ use its exported methods.
type cluster struct {
	Number int
	// State is the directory for all files of the cluster.
	State string
	// bin is the directory of this program, kubectl and helm. bin/host has the programs and images of the cluster.
	bin string
}

func newCluster(number string) (cluster, error) {
	n := 0
	if number != "" {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 0 || n > 9 {
			return cluster{}, fmt.Errorf("KCP_HOST must be the number of a cluster from 0 to 9, got %q", number)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return cluster{}, err
	}
	return cluster{Number: n, State: fmt.Sprintf("/var/lib/kcp-host/%d", n), bin: filepath.Dir(self)}, nil
}

// Addresses: the machine reaches the node through a pair of links, and pods and Services through the node.

func (c cluster) HostIP() string     { return fmt.Sprintf("10.250.%d.1", c.Number) }
func (c cluster) NodeIP() string     { return fmt.Sprintf("10.250.%d.2", c.Number) }
func (c cluster) PodCIDR() string    { return fmt.Sprintf("10.244.%d.0/24", c.Number) }
func (c cluster) ServiceNet() string { return fmt.Sprintf("10.%d.0.0/16", 96+c.Number) }
func (c cluster) APIServerIP() string {
	return fmt.Sprintf("10.%d.0.1", 96+c.Number) // the first address for Services, which Kubernetes assigns to its API
}
func (c cluster) DNSIP() string { return fmt.Sprintf("10.%d.0.10", 96+c.Number) }

// NodeName is the name of the Node object, and the host name of the node.
func (c cluster) NodeName() string { return fmt.Sprintf("host-%d", c.Number) }

// Link is the machine's end of the pair of links to the node.
func (c cluster) Link() string { return fmt.Sprintf("kcphost%d", c.Number) }

// CgroupRoot is the name of a group below the root of every controller. It has a group for the node and one for pods.
func (c cluster) CgroupRoot() string { return fmt.Sprintf("kcphost%d", c.Number) }

// CNIBin is the directory of the network plugins.
func (c cluster) CNIBin() string { return "/usr/lib/cni" }

// Kubeconfig returns the path of the kubeconfig of a user.
func (c cluster) Kubeconfig(user string) string { return filepath.Join(c.State, user+".kubeconfig") }

func (c cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.State}, parts...)...)
}

// built returns the path of a program or image that was built for the cluster.
func (c cluster) built(name string) string { return filepath.Join(c.bin, "host", name) }

// pid returns the process ID of the node's first process, or 0 if it does not run.
func (c cluster) pid() int {
	content, err := os.ReadFile(c.path("pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	commandLine, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Equal(commandLine, []byte(c.nodeTitle()+"\x00node\x00")) {
		return 0 // another process has this ID now
	}
	return pid
}

// nodeTitle is the title of the node's first process. It distinguishes the clusters.
func (c cluster) nodeTitle() string { return "kcp-host-" + strconv.Itoa(c.Number) }

var errNotRunning = errors.New("the cluster is not running: start it with make host-up")

// inside returns a command that runs in the namespaces of the node.
func (c cluster) inside(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(c.pid()), "--mount", "--net", "--pid", "--uts", "--"}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

func (c cluster) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return c.inside(ctx, append([]string{"ctr", "--namespace", "k8s.io"}, args...)...)
}

func (c cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return c.client(ctx, "kubectl", args...)
}

// client returns a command that runs a client with the kubeconfig of the administrator.
func (c cluster) client(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig("admin"))
	return cmd
}

// quiet runs a command, and shows its output only if it fails.
func quiet(cmd *exec.Cmd) error {
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// loud runs a command with the input and output of the terminal.
func loud(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func (c cluster) load(ctx context.Context, images ...string) error {
	if c.pid() == 0 {
		return errNotRunning
	}
	for _, image := range images {
		// Open the file here, because the node has its own /run.
		file, err := os.Open(image)
		if err != nil {
			return err
		}
		defer file.Close()
		cmd := c.ctr(ctx, "images", "import", "--no-unpack", "-")
		cmd.Stdin = file
		if err := quiet(cmd); err != nil {
			return fmt.Errorf("%s: %w", image, err)
		}
	}
	return nil
}

func (c cluster) exec(ctx context.Context, args []string) error {
	if c.pid() == 0 {
		return errNotRunning
	}
	if len(args) == 0 {
		return errors.New("exec requires a command, for example kcp-host exec ctr --namespace k8s.io images list")
	}
	return loud(c.inside(ctx, args...))
}

func (c cluster) status(ctx context.Context) error {
	if c.pid() == 0 {
		return errNotRunning
	}
	if err := loud(c.kubectl(ctx, "get", "nodes,pods", "--all-namespaces", "--output=wide")); err != nil {
		return err
	}
	for _, part := range []string{nodeGroup, podsGroup} {
		used, err := c.memory(part)
		if err != nil {
			return err
		}
		fmt.Printf("memory of the %s: %d MiB\n", part, used>>20)
	}
	return nil
}
