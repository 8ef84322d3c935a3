// Command kcp is the server: kcp start runs it.
package main

import (
	"os"
	_ "time/tzdata" // time zones in policies of users: images have none

	_ "golang.org/x/crypto/x509roots/fallback" // nor whom everybody trusts
	"k8s.io/component-base/cli"

	"github.com/kcplane/kcp/server/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.New()))
}
