// Command kcp-host runs a real Kubernetes cluster with one node on this machine, for tests of the operator: etcd, the control plane,
// kubelet, kube-proxy and containerd, with DNS, volumes and cert-manager. The cluster has its own mount, network and process namespaces:
// it uses no ports of the machine, and ends when its first process is killed.
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

  kcp-host up                 start the cluster, or continue an interrupted start
  kcp-host down               remove the cluster and its files
  kcp-host operator           install the operator with the images of make host-operator, and create a small kcp
  kcp-host status             show nodes and pods, and the memory that the cluster uses
  kcp-host load IMAGE.tar...  import images into the node, which has no registry to pull from
  kcp-host exec COMMAND...    run a command on the node, where names of Services resolve
  kcp-host kubeconfig         print the path of the administrator's kubeconfig

KCP_HOST=0…9 selects one of several clusters on this machine; the default is 0.
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
		return errors.New("kcp-host creates namespaces and containers, which requires root: run it with sudo")
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
	case "node": // up starts this in the namespaces
		return c.node()
	}
	return fmt.Errorf("unknown command %q\n\n%s", args[0], usage)
}
