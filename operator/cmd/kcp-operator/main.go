// Command kcp-operator runs kcp on a Kubernetes cluster.
package main

import (
	"os"
	_ "time/tzdata" // time zones of schedules, which images do not have

	"github.com/kcplane/kcp/operator/cmd"
)

func main() {
	if cmd.New().Execute() != nil {
		os.Exit(1)
	}
}
