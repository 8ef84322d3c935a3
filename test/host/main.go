// Command kcp-host runs a real Kubernetes cluster of one node on this machine, for the operator to be tested on: etcd, the
// control plane, kubelet, kube-proxy and containerd, with DNS, volumes and cert-manager. All of it is in mount, network
// and process namespaces of its own. It disturbs nobody's ports, and goes when one process is killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const usage = `kcp-host runs a real Kubernetes cluster of one node on this machine. It needs root.

  kcp-host up                 start the cluster, or bring what was started to its end
  kcp-host down               remove the cluster, and all that it wrote
  kcp-host operator           install the operator with the images of make host-operator, and make a small kcp
  kcp-host status             show nodes and pods, and what the cluster uses of the machine
  kcp-host load IMAGE.tar...  give images to the node; there is no registry to pull from
  kcp-host exec COMMAND...    run a command on the node, where the names of Services resolve
  kcp-host kubeconfig         print where the kubeconfig of the administrator is

KCP_HOST=0…9 chooses among clusters on one machine; unset is 0.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && len(os.Args) > 1 && os.Args[1] == "exec":
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintf(os.Stderr, "kcp-host: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Print(usage)
		return nil
	}
	c, err := newCluster(os.Getenv("KCP_HOST"))
	if err != nil {
		return err
	}
	if args[0] == "kubeconfig" {
		fmt.Println(c.Kubeconfig("admin"))
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces and containers need root: run it with sudo")
	}
	switch args[0] {
	case "up":
		return c.up(ctx)
	case "down":
		return c.down()
	case "operator":
		return c.operator(ctx)
	case "status":
		return c.status(ctx)
	case "load":
		return c.load(ctx, args[1:]...)
	case "exec":
		return c.exec(ctx, args[1:])
	case "node": // what up starts in the namespaces
		return c.node()
	}
	return fmt.Errorf("there is no command %q\n\n%s", args[0], usage)
}
