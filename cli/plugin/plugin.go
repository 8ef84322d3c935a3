// Package plugin runs a command as kubectl runs its plugins: as a program of its own, and for the completion of what is typed
// under a second name of the same program.
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

// completion begins the name under which kubectl looks for what completes a plugin: kubectl_complete-ws for kubectl-ws.
const completion = "kubectl_complete-"

// Name is what kubectl calls the plugin of the program that runs, for example ws.
func Name(program string) string {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	for _, prefix := range []string{completion, "kubectl-"} {
		if plugin, found := strings.CutPrefix(name, prefix); found {
			return plugin
		}
	}
	return name
}

// Arguments are those of the command: in the completion program they are to be completed.
func Arguments(program string, args []string) []string {
	if strings.HasPrefix(filepath.Base(program), completion) {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// Run runs the command that build makes for the name of the program, and exits.
func Run(build func(name string, streams genericiooptions.IOStreams) *cobra.Command) {
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
