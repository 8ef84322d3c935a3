// Command kcp-operator makes kcp on a Kubernetes cluster.
package main

import (
	"os"
	_ "time/tzdata" // time zones of schedules: images have none

	"github.com/kcplane/kcp/operator/cmd"
)

func main() {
	if cmd.New().Execute() != nil {
		os.Exit(1)
	}
}
