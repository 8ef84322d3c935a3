// Package plugin runs the kubectl plugins. They share one program, and the name it is called by selects the plugin.
package plugin

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// completion is the prefix of the programs that kubectl runs to complete the arguments of a plugin: kubectl_complete-ws for kubectl-ws.
const completion = "kubectl_complete-"

// Name returns the name of the plugin that a program is called as, for example ws for kubectl-ws and for kubectl_complete-ws.
// kubectl and krew replace dashes inside a plugin's name by underscores, and Name reverts that.
func Name(program string) string {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	for _, prefix := range []string{completion, "kubectl-"} {
		if plugin, found := strings.CutPrefix(name, prefix); found {
			return strings.ReplaceAll(plugin, "_", "-")
		}
	}
	return name
}

// Arguments returns the arguments for the plugin's command. A completion program passes them to cobra's completion.
func Arguments(program string, args []string) []string {
	if strings.HasPrefix(filepath.Base(program), completion) {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// Run runs the command that build returns for the plugin's name, then exits the process.
func Run(build func(plugin string, streams genericiooptions.IOStreams) *cobra.Command) {
	os.Exit(run(build))
}

func run(build func(string, genericiooptions.IOStreams) *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd := build(Name(os.Args[0]), streams)
	cmd.SetArgs(Arguments(os.Args[0], os.Args[1:]))
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(streams.ErrOut, "Error: %v\n", err)
		return 1
	}
	return 0
}
