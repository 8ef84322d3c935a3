// Command run starts an installation of several processes on this machine, and stops it on Ctrl+C. With -suites, it runs packages of
// end-to-end tests through the front proxies of an installation, and exits with the code of go test.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

func main() {
	directory := flag.String("directory", "", "Directory for all files of the installation. By default, a temporary one.")
	run := flag.String("suites", "", "Run tests of test/e2e: chosen, all, or names separated by commas. Arguments after the flags are "+
		"those of go test.")
	var options sharded.Options
	flag.IntVar(&options.Shards, "shards", 2, "Number of shards besides the root shard.")
	flag.IntVar(&options.Proxies, "proxies", 1, "Number of front proxies.")
	flag.IntVar(&options.Port, "port", 6443, "Port of the installation. 0 means any port.")
	flag.Parse()
	code, err := start(*directory, *run, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start starts an installation until it is interrupted, or until the tests of suites end.
func start(directory, suites string, options sharded.Options) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if directory == "" {
		if directory, err = os.MkdirTemp("", "kcp-sharded-"); err != nil {
			return 1, err
		}
		defer os.RemoveAll(directory)
	}
	if suites != "" {
		return test(ctx, directory, suites, flag.Args())
	}
	return 0, serve(ctx, directory, options)
}

// serve starts an installation, and stops it when ctx ends or when one of its processes exits.
func serve(ctx context.Context, directory string, options sharded.Options) (err error) {
	began := time.Now()
	options.Users = []kcptest.User{{Name: "kcp-admin", Groups: []string{"system:kcp:admin"}, Token: rand.Text()}}
	installation, err := sharded.Start(directory, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installation.Stop()) }()
	greet(os.Stderr, installation, time.Since(began))
	return installation.Wait(ctx)
}

// greet prints what the installation consists of, and commands to try next.
func greet(out io.Writer, i *sharded.Installation, took time.Duration) {
	fmt.Fprintf(out, "\nkcp is ready at %s (%.1f s).\n\n", i.URL(), took.Seconds())
	for _, p := range i.Processes() {
		fmt.Fprintf(out, "  %-9s %s  %s\n", p.Name, p.URL, p.Log)
	}
	fmt.Fprintf(out, `
In another terminal:

  export KUBECONFIG=%s
  kubectl get shards            # in the workspace "root"
  kubectl create workspace demo --location-selector=name=%s --enter
  kubectl get namespaces

Press Ctrl+C to stop.

`, i.Kubeconfig(), i.Shards[len(i.Shards)-1].Name)
}
