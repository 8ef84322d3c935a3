// Command kcp-operator makes kcp on a Kubernetes cluster.
package main

import (
	"os"

	"github.com/kcplane/kcp/operator/cmd"
)

func main() {
	if cmd.New().Execute() != nil {
		os.Exit(1)
	}
}
