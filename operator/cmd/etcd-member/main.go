// Command etcd-member runs a member of an EtcdCluster. The arguments after -- are those of etcd. The operator provides the arguments for
// the first start of a member.
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

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/pkg/v3/osutil"
	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/kcplane/kcp/operator/internal/etcdmember"
)

func main() {
	log.SetFlags(0)
	dataDir := flag.String("data-dir", "", "directory of the member's data, on its volume")
	startFile := flag.String("start-file", "", "file with the start of a member without data; the operator writes it")
	address := flag.String("waiting-address", ":8080", "address of the health checks while the member waits for its start")
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
	osutil.RegisterInterruptHandler(etcdmember.StopAlone(prometheus.DefaultGatherer, func() { os.Exit(0) })) // before those of etcd
	etcdmain.Main(args)
}

func await(file, address string) etcdmember.Start {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // etcd handles signals by itself
	log.Print("the volume is empty: waiting for the operator")
	start, err := etcdmember.Await(ctx, file, address, time.Second/4)
	if err != nil {
		log.Fatal(err)
	}
	return start
}
