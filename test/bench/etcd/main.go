// Command etcd is the server that vanilla Kubernetes is measured with, at the version that kcp embeds.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
