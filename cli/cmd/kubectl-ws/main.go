// Command kubectl-ws is the plugin kubectl ws. Under the name kubectl-workspace it is kubectl workspace.
package main

import (
	"github.com/kcplane/kcp/cli/command"
	"github.com/kcplane/kcp/cli/plugin"
)

func main() {
	plugin.Run(command.Workspace)
}
