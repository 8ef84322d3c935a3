// Command kcp is the server: kcp start runs it.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/kcplane/kcp/server/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.New()))
}
