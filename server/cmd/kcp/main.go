// Command kcp is the server: kcp start runs it. Under the name kcp-front-proxy, it is kcp front-proxy.
package main

import (
	"os"
	_ "time/tzdata" // for time zones in policies of users: images have no time zone data

	_ "golang.org/x/crypto/x509roots/fallback" // for TLS: images have no root certificates
	"k8s.io/component-base/cli"

	"github.com/kcplane/kcp/server/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.ForProgram(os.Args[0])))
}
