// Package tutorial runs the commands on pages of docs/, and compares their output with the pages.
package tutorial

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/kcplane/kcp/test/sharded"
)

// documents are the pages to run, each from beginning to end on its own server.
//
// The info string of a block selects what happens with it: "sh" runs commands, "console" runs commands and compares their output, and
// "sh terminal=controller" runs a command in a second terminal until the test ends. Other blocks are not run.
var documents = []string{"quickstart.md", "kubectl.md", "workspaces.md", "apis.md"}

// terminal is a shell. It exits when a command fails.
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
	_, _ = fmt.Fprintln(s.typed, text) // an error shows when the output is read
}

// run returns the output of commands, and an error if one of them fails. The shell sources them from a file, because a command could
// otherwise read the following commands from standard input.
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

// check compares the output of each command with a block. It retries until they are equal or the test times out.
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
				return fmt.Errorf("got\n%s", got)
			}
			return nil
		})
	}
}

func TestDocumentsShowTheOutputOfTheirCommands(t *testing.T) {
	for _, document := range documents {
		t.Run(document, func(t *testing.T) {
			server := kcptest.StartIn(t, t.TempDir())
			follow(t, document, server, "")
			if document == "quickstart.md" {
				checkResident(t, server)
			}
		})
	}
}

// mostResident is the resident memory of a server after the commands of the quick start, in KiB.
const mostResident = 300 << 10

// checkResident waits until the server is not larger than mostResident. It returns the garbage of its start and of the commands when it
// has less to do.
func checkResident(t *testing.T, server *kcptest.Server) {
	t.Helper()
	kcptest.Eventually(t, "the server is as small as the documentation says", func(context.Context) error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.ID()))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			var resident int
			if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &resident); err != nil {
				continue
			}
			if t.Logf("%d KiB are resident", resident); resident > mostResident {
				return fmt.Errorf("%d KiB are resident, want at most %d", resident, mostResident)
			}
			return nil
		}
		return errors.New("the resident memory of the server is unknown")
	})
}

// shardContext is the context of the administrator of a shard, which an installation does not have under this name.
const shardContext = "shard-base"

// An administrator uses the URL of the front proxies for everything on the page, except for what needs the permissions of a shard's
// administrator.
func TestTheQuickStartWorksThroughAFrontProxy(t *testing.T) {
	admin := kcptest.User{Name: "kcp-admin", Groups: []string{"system:kcp:admin"}, Token: "token-of-admin"}
	installation, err := sharded.Start(t.TempDir(), sharded.Options{
		Shards: 2, Proxies: 1, Users: []kcptest.User{admin}, ShardFlags: []string{"--workspace-placement=spread"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := installation.Stop(); err != nil {
			t.Error(err)
		}
	})
	server := installation.Proxies[0].Server()
	server.Root = installation.Directory
	follow(t, "quickstart.md", server, shardContext)
}

// follow runs the blocks of a page, until one contains a text unless that is empty.
func follow(t *testing.T, document string, server *kcptest.Server, until string) {
	directory := t.TempDir()
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
		if until != "" && strings.Contains(b.Text, until) {
			break
		}
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
			t.Errorf("line %d: unknown info string %q", b.Line, b.Info)
		}
	}
	if ran == 0 {
		t.Error("the page has no commands")
	}
}

// control runs the commands of a block in the repository, in another terminal, until the test ends. It returns after their first output,
// because a program may have to be built first.
func control(t *testing.T, b kcptest.Block, env []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "controller.log")
	home := "HOME=" + os.Getenv("HOME") // for the build cache of Go
	open(t, filepath.Join("..", "..", ".."), append(slices.Clone(env), home)).enter("exec > " + log + " 2>&1\n" + b.Text)
	t.Cleanup(func() {
		if content, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("last output of the controller:\n%s", content[max(0, len(content)-4000):])
		}
	})
	for ctx := kcptest.Context(t); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if said, err := os.Stat(log); err == nil && said.Size() > 0 {
			return
		}
	}
	t.Fatalf("line %d: the commands print nothing", b.Line)
}
