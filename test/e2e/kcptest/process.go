package kcptest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a running program of this repository.
type Process struct {
	// Log is the file with the output of the program.
	Log string

	// name is what errors call the program.
	name    string
	command *exec.Cmd
	exited  chan struct{}
}

// ID is the number that the operating system gives the process.
func (p *Process) ID() int { return p.command.Process.Pid }

// BeginProcess starts a program of this repository, and appends its output to a file. Errors call the program by name.
func BeginProcess(name, log, program string, args ...string) (*Process, error) {
	binary, err := Binary(program)
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &Process{Log: log, name: name, command: exec.Command(binary, args...), exited: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = output, output
	p.command.Env = append([]string{mutationDetector + "=true"}, os.Environ()...)
	// In its own group, the process does not receive the signal of Ctrl+C, so that its parent can stop it in an orderly way.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.exited)
	}()
	return p, nil
}

// AwaitReady returns when ready returns nil. If the process does not become ready, AwaitReady kills it and returns an error.
func (p *Process) AwaitReady(ready func() error) error {
	if err := p.awaitReady(ready); err != nil {
		p.Kill()
		return fmt.Errorf("%w; the last lines of its log:\n%s", err, p.tail(40))
	}
	return nil
}

func (p *Process) awaitReady(ready func() error) error {
	deadline := time.Now().Add(StartTimeout)
	for last := errors.New("no response"); ; {
		select {
		case <-p.exited:
			return fmt.Errorf("%s exited with %s", p.name, p.command.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %s: %w", p.name, StartTimeout, last)
		}
		if last = ready(); last == nil {
			return nil
		}
	}
}

// AwaitEnd waits until the process exits, and returns whether it succeeded, and the end of its log.
func (p *Process) AwaitEnd(t testing.TB) (success bool, log string) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(StartTimeout):
		t.Fatalf("%s did not exit within %s; the last lines of its log:\n%s", p.name, StartTimeout, p.tail(40))
	}
	return p.command.ProcessState.Success(), p.tail(40)
}

// Stop stops the process with SIGTERM, as an operator would, and returns an error if the process fails.
func (p *Process) Stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(StartTimeout):
		p.Kill()
		return fmt.Errorf("%s did not stop within %s; the last lines of its log:\n%s", p.name, StartTimeout, p.tail(40))
	}
	if !p.command.ProcessState.Success() {
		return fmt.Errorf("%s exited with %s; the last lines of its log:\n%s", p.name, p.command.ProcessState, p.tail(40))
	}
	return nil
}

// Kill kills the process at once, as a power failure would.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.exited
}

// Exited is closed when the process has exited.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// PID is the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// panics are log messages that the libraries of the programs write after a panic.
var panics = [][]byte{
	[]byte("Observed a panic"),
	[]byte("panic serving"),
	[]byte("apiserver panic'd"),
	[]byte("\npanic: "),
	[]byte("goroutine 1 ["),
}

// Panics returns an error if the log of the process contains a panic, with the lines around the first one.
func (p *Process) Panics() error {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return err
	}
	for _, text := range panics {
		if at := bytes.Index(content, text); at >= 0 {
			return fmt.Errorf("%s panicked:\n%s", p.name, content[max(0, at-500):min(len(content), at+4000)])
		}
	}
	return nil
}

func (p *Process) tail(lines int) string {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
