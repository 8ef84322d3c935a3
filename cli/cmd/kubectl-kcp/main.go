// Command kubectl-kcp is the plugin kubectl kcp.
package main

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kcplane/kcp/cli/command"
	"github.com/kcplane/kcp/cli/plugin"
)

func main() {
	plugin.Run(func(_ string, streams genericiooptions.IOStreams) *cobra.Command { return command.Kcp(streams) })
}
