// Command etcd is the etcd for vanilla Kubernetes, with the version that kcp embeds.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
