// Command etcd-member runs a member of an EtcdCluster. Arguments after -- are for etcd; the operator provides those for the first start of
// a member when the member may start.
//
//	etcd-member -data-dir=/data/etcd -start-file=/etc/etcd/start -- --name=a-0 …
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/kcplane/kcp/operator/internal/etcdmember"
)

func main() {
	log.SetFlags(0)
	dataDir := flag.String("data-dir", "", "directory of the member's data, on its volume")
	startFile := flag.String("start-file", "", "file that tells a member without data what to start as, once it is known")
	address := flag.String("waiting-address", ":8080", "where it answers that it waits to be told")
	flag.Parse()
	args := append([]string{os.Args[0], "--data-dir=" + *dataDir}, flag.Args()...)

	empty, err := etcdmember.Empty(*dataDir)
	if err != nil {
		log.Fatal(err)
	}
	if empty {
		start := await(*startFile, *address)
		log.Printf("starting as %+v", start)
		args = append(args, start.Arguments()...)
	}
	etcdmain.Main(args)
}

func await(file, address string) etcdmember.Start {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // etcd handles signals itself
	log.Print("the volume is empty: waiting for the operator")
	start, err := etcdmember.Await(ctx, file, address, time.Second/4)
	if err != nil {
		log.Fatal(err)
	}
	return start
}
