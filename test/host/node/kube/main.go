// Command kube is etcd and every program of a Kubernetes node in one executable, because linking them separately takes longer than the
// rest of the build. Its name (a symbolic link) or its first argument selects the program.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(kubeapiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(kubecontrollermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() { run(kubeproxy.NewProxyCommand()) },
	"kube-scheduler":          func() { run(kubescheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"volumes":                 volumes,
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	program := programs[name]
	if program == nil {
		fmt.Fprintf(os.Stderr, "unknown program %q, expected one of %v\n", name, slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	program()
}
