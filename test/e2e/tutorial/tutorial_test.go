// Package tutorial runs what pages of docs/ tell their readers to type, and compares what they show with what readers would see.
package tutorial

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// documents are the pages that are run, each from its beginning to its end and on a server of its own.
//
// The word behind a fence says what is done with a block: "sh" for commands, "console" for commands with their output, "sh
// terminal=controller" for a command that runs until the reader ends it, in a terminal of its own, and something else for what
// nobody runs.
var documents = []string{"quickstart.md", "kubectl.md", "workspaces.md", "apis.md"}

// terminal is a shell that a reader types into. It ends at the first command that fails.
type terminal struct {
	typed io.Writer
	shown *bufio.Reader
}

const prompt = "--- the commands have ended ---"

// open starts a shell in a directory, which ends with the test.
func open(t *testing.T, directory string, env []string) *terminal {
	t.Helper()
	shell := exec.Command("bash")
	shell.Dir, shell.Env = directory, env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	typed, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // what the shell has started, too
		_ = shell.Wait()
	})
	terminal := &terminal{typed, bufio.NewReader(shown)}
	terminal.enter("exec 2>&1; set -euo pipefail")
	return terminal
}

func (s *terminal) enter(text string) {
	_, _ = fmt.Fprintln(s.typed, text) // a shell that has ended tells so when its output is read
}

// run returns what the commands print, and an error if one of them fails. They are sourced from a file, so that none of them reads
// what is typed next.
func (s *terminal) run(t *testing.T, commands string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "commands")
	if err := os.WriteFile(file, []byte(commands), 0o600); err != nil {
		t.Fatal(err)
	}
	s.enter("source " + file + " </dev/null; echo '" + prompt + "'")
	var shown strings.Builder
	for {
		line, err := s.shown.ReadString('\n')
		if before, ended := strings.CutSuffix(line, prompt+"\n"); ended {
			return shown.String() + before, nil
		}
		shown.WriteString(line)
		if err != nil {
			return shown.String(), fmt.Errorf("a command failed: %w", err)
		}
	}
}

// check compares the output of each command with what a block shows. It may take a moment until it is so.
func (s *terminal) check(t *testing.T, b kcptest.Block) {
	t.Helper()
	for _, entry := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(entry, "\n")
		kcptest.Eventually(t, fmt.Sprintf("the output of line %d and following, $ %s", b.Line, command), func(context.Context) error {
			got, err := s.run(t, "( "+command+"\n) || true\n")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
				return fmt.Errorf("it is\n%s", got)
			}
			return nil
		})
	}
}

func TestDocumentsDoWhatTheyShow(t *testing.T) {
	for _, document := range documents {
		t.Run(document, func(t *testing.T) { follow(t, document) })
	}
}

// follow does what a page says, in a directory in which the server was started.
func follow(t *testing.T, document string) {
	server, directory := kcptest.StartIn(t, t.TempDir()), t.TempDir()
	if err := os.Symlink(server.Root, filepath.Join(directory, ".kcp")); err != nil {
		t.Fatal(err)
	}
	env := append(server.Named("root").Command(t, "kubectl", kcptest.Masters).WithPlugins(t).Environment(), "KUBECONFIG="+server.Kubeconfig())
	reader := open(t, directory, env)
	if _, err := reader.run(t, "make() { :; }\n"); err != nil { // everything is built, and the server runs
		t.Fatal(err)
	}
	ran := 0
	for _, b := range kcptest.Blocks(t, filepath.Join("..", "..", "..", "docs", document)) {
		b.Text = strings.ReplaceAll(b.Text, "https://localhost:6443", server.URL)
		switch b.Info {
		case "sh":
			ran++
			if out, err := reader.run(t, b.Text); err != nil {
				t.Fatalf("the commands of line %d and following: %v\n%s", b.Line, err, out)
			}
		case "console":
			ran++
			reader.check(t, b)
		case "sh terminal=controller":
			control(t, b, env)
		case "yaml", "go", "text": // to be read
		default:
			t.Errorf("line %d: nobody runs a block of %q", b.Line, b.Info)
		}
	}
	if ran == 0 {
		t.Error("there is nothing to run in the document")
	}
}

// control runs the commands of a block in the repository, in a terminal of their own, until the test ends. It returns when they
// have something to say: what they run may have to be built first.
func control(t *testing.T, b kcptest.Block, env []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "controller.log")
	home := "HOME=" + os.Getenv("HOME") // where Go has what it has built before
	open(t, filepath.Join("..", "..", ".."), append(slices.Clone(env), home)).enter("exec > " + log + " 2>&1\n" + b.Text)
	t.Cleanup(func() {
		if content, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("the controller says at last:\n%s", content[max(0, len(content)-4000):])
		}
	})
	for ctx := kcptest.Context(t); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if said, err := os.Stat(log); err == nil && said.Size() > 0 {
			return
		}
	}
	t.Fatalf("the commands of line %d and following say nothing", b.Line)
}
