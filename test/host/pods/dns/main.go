// Command dns is CoreDNS with only the plugins that resolve names of Services and pods.
package main

import (
	"github.com/coredns/coredns/coremain"

	// Each import registers a plugin.
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() { coremain.Run() }
