package main

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// test runs suites against an installation of their own, and returns the code of go test.
func test(ctx context.Context, directory, value string, arguments []string) (code int, err error) {
	run, err := selected(value)
	if err != nil {
		return 1, err
	}
	options := forSuites()
	options.Users, options.ProxyUsers = sharded.TestUsers()
	installation, err := sharded.Start(directory, options)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, installation.Stop()) }()
	file, err := installation.Describe(ctx)
	if err != nil {
		return 1, err
	}
	return execute(ctx, installation, testCommand(run, arguments), kcptest.InstalledVariable+"="+file)
}

// execute runs a command until it ends, or until a process of the installation exits.
func execute(ctx context.Context, installation *sharded.Installation, command []string, environment string) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- installation.Wait(ctx)
		cancel()
	}()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdout, c.Stderr, c.Env = os.Stdout, os.Stderr, append(os.Environ(), environment)
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
