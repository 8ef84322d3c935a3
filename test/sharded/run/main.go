// Command run starts an installation of several processes on this machine, and stops it on Ctrl+C. With a command after its flags, such as
// go test, it runs the command with the installation for kcptest.Main, and exits with its code.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

func main() {
	directory := flag.String("directory", ".kcp-sharded", "Directory for all files of the installation.")
	var options sharded.Options
	flag.IntVar(&options.Shards, "shards", 2, "Number of shards besides the root shard.")
	flag.IntVar(&options.Proxies, "proxies", 1, "Number of front proxies.")
	flag.IntVar(&options.Port, "port", 6443, "Port of the installation. 0 means any port.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := 0, error(nil)
	if command := flag.Args(); len(command) > 0 {
		code, err = runCommand(ctx, *directory, options, command)
	} else {
		err = run(ctx, *directory, options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run starts an installation, and stops it when ctx ends or when one of its processes exits.
func run(ctx context.Context, directory string, options sharded.Options) (err error) {
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

// runCommand starts an installation with the users of kcptest, and runs a command until it ends or until a process of the installation
// exits.
func runCommand(ctx context.Context, directory string, options sharded.Options, command []string) (code int, err error) {
	options.Users, options.ProxyUsers = sharded.TestUsers()
	installation, err := sharded.Start(directory, options)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, installation.Stop()) }()
	file, err := installation.Describe()
	if err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- installation.Wait(ctx)
		cancel()
	}()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), kcptest.InstalledVariable+"="+file)
	err = c.Run()
	cancel()
	if lost := <-ended; lost != nil {
		return 1, lost
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
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
