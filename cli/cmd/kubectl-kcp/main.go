// Command kubectl-kcp contains all kubectl plugins of kcp. The name it is called by selects the plugin: kubectl-kcp, kubectl-ws,
// kubectl-workspace or kubectl-create-workspace. With the prefix kubectl_complete- instead of kubectl- it prints completions of that
// plugin.
package main

import (
	"github.com/kcplane/kcp/cli/internal/command"
	"github.com/kcplane/kcp/cli/internal/plugin"
)

func main() {
	plugin.Run(command.Plugin)
}
