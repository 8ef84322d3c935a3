package kcptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// User is an identity with a bearer token that the server accepts.
type User struct {
	// Name is the user name in Kubernetes.
	Name string
	// Groups are the groups besides system:authenticated.
	Groups []string
	// Token proves the identity. If it is empty, the user is anonymous.
	Token string
}

// These users exist on every server that Start starts. Only Masters has permissions at first.
var (
	Alice     = User{Name: "alice", Groups: []string{"team-a"}, Token: "token-of-alice"}
	Bob       = User{Name: "bob", Groups: []string{"team-b"}, Token: "token-of-bob"}
	Victor    = User{Name: "victor", Token: "token-of-victor"}
	Stranger  = User{Name: "stranger", Token: "token-of-stranger"}
	Masters   = User{Name: "root-of-trust", Groups: []string{"system:masters"}, Token: "token-of-masters"}
	Anonymous = User{Name: "system:anonymous"}
)

// mutationDetector makes the server panic when its code changes an object of an informer, which all readers share. Packages that measure
// set it to false in their environment, because it costs memory and time.
const mutationDetector = "KUBE_CACHE_MUTATION_DETECTOR"

// StartTimeout limits the time until a server is ready, on a busy machine.
const StartTimeout = 90 * time.Second

// Server is a running server process.
type Server struct {
	// URL is the URL of the server, without a path.
	URL string
	// Root is the root directory of the server.
	Root string
	// Log is the file with the output of the server.
	Log string

	process *exec.Cmd
	exited  chan struct{}
	base    *rest.Config
	clients sync.Map // user → *http.Client: one connection for each user, regardless of the number of clients
}

// Main is the TestMain of a package: it starts a server, stores it, runs the tests and stops the server.
func Main(m *testing.M, server **Server, flags ...string) {
	os.Exit(run(m, server, flags))
}

func run(m *testing.M, server **Server, flags []string) int {
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	s, err := Start(dir, flags...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = s
	return s.Run(m)
}

// Run runs the tests of a package, stops the server that they share, and returns the exit code. A server that panicked, or that fails to
// stop, fails the package.
func (s *Server) Run(m *testing.M) int {
	code := m.Run()
	if err := errors.Join(s.Stop(), s.Panics()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if keep := os.Getenv("KCP_LOG"); keep != "" {
		if content, err := os.ReadFile(s.Log); err == nil {
			_ = os.WriteFile(keep, content, 0o600)
		}
	}
	return code
}

// Start starts a server with its data below dir, and returns when it is ready. After Stop, another Start with the same directory uses the
// stored data.
func Start(dir string, flags ...string) (*Server, error) {
	s, err := Begin(dir, flags...)
	if err != nil {
		return nil, err
	}
	return s, s.AwaitReady()
}

// Begin is Start without waiting until the server is ready. If dir belonged to a former server, clients can send requests at once.
func Begin(dir string, flags ...string) (*Server, error) {
	binary, err := Binary("kcp")
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := writeTokens(tokens, Alice, Bob, Victor, Stranger, Masters); err != nil {
		return nil, err
	}
	s := &Server{
		URL: fmt.Sprintf("https://127.0.0.1:%d", port), Root: filepath.Join(dir, "kcp"), Log: filepath.Join(dir, "kcp.log"),
		exited: make(chan struct{}),
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := append([]string{
		"start", "--root-directory=" + s.Root, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--token-auth-file=" + tokens,
	}, flags...)
	s.process = exec.Command(binary, args...)
	s.process.Stdout, s.process.Stderr = log, log
	s.process.Env = append([]string{mutationDetector + "=true"}, os.Environ()...)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	go func() {
		_ = s.process.Wait()
		close(s.exited)
	}()
	if config, err := s.authorities(); err == nil {
		s.base = config
	}
	return s, nil
}

// AwaitReady returns when the server is ready. If it does not become ready, AwaitReady stops it and returns an error.
func (s *Server) AwaitReady() error {
	if err := s.waitUntilReady(); err != nil {
		s.Kill()
		return fmt.Errorf("%w; the last lines of its log:\n%s", err, s.tail(40))
	}
	return nil
}

// AwaitEnd waits until the process exits, and returns whether it succeeded, and the end of its log.
func (s *Server) AwaitEnd(t testing.TB) (success bool, log string) {
	t.Helper()
	select {
	case <-s.exited:
	case <-time.After(StartTimeout):
		t.Fatalf("the server did not exit within %s; the last lines of its log:\n%s", StartTimeout, s.tail(40))
	}
	return s.process.ProcessState.Success(), s.tail(40)
}

// StartIn is Start for a test: the server is stopped when the test ends, or before.
func StartIn(t testing.TB, dir string, flags ...string) *Server {
	t.Helper()
	server, err := Start(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if err := server.Panics(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Probe is a GET of an object that exists and that the user has permission to read.
type Probe struct {
	User User
	Path string
}

// RestartIn is StartIn for the directory of a former server, with clients that send probes from the first moment until the server is
// ready. The server must not answer incorrectly during that time: the test fails if a status is neither 200 nor one after which clients
// retry.
func RestartIn(t testing.TB, dir string, probes []Probe, flags ...string) *Server {
	t.Helper()
	server, err := Begin(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	ctx, end := context.WithCancel(t.Context())
	var probing sync.WaitGroup
	for _, q := range probes {
		probing.Go(func() {
			for ctx.Err() == nil {
				if code, body := server.get(ctx, t, q); code != 0 && code != http.StatusOK && code != http.StatusTooManyRequests && code < 500 {
					t.Errorf("user %s, GET %s while the server starts: got %d %s", q.User.Name, q.Path, code, body)
					return
				}
			}
		})
	}
	err = server.AwaitReady()
	end()
	probing.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range probes {
		if code, body := server.get(t.Context(), t, q); code != http.StatusOK {
			t.Errorf("user %s, GET %s when the server is ready: got %d %s", q.User.Name, q.Path, code, body)
		}
	}
	return server
}

// Get returns the response to a GET of a path outside of clusters.
func (s *Server) Get(t testing.TB, user User, path string) (int, string) {
	t.Helper()
	return s.get(Context(t), t, Probe{User: user, Path: path})
}

// get returns the response to a probe; the code is 0 if there is no response.
func (s *Server) get(ctx context.Context, t testing.TB, q Probe) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+q.Path, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	response, err := s.client(t, q.User).Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// Stop stops the server with SIGTERM, as an operator would, and returns an error if the server fails.
func (s *Server) Stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(StartTimeout):
		s.Kill()
		return fmt.Errorf("the server did not stop within %s; the last lines of its log:\n%s", StartTimeout, s.tail(40))
	}
	if !s.process.ProcessState.Success() {
		return fmt.Errorf("the server exited with %s; the last lines of its log:\n%s", s.process.ProcessState, s.tail(40))
	}
	return nil
}

// Kill kills the server at once, as a power failure would.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	<-s.exited
}

// PID is the process ID of the server.
func (s *Server) PID() int { return s.process.Process.Pid }

// Config returns the configuration of a client of user for the server.
func (s *Server) Config(user User) *rest.Config {
	config := rest.AnonymousClientConfig(s.base)
	config.Host = s.URL
	config.BearerToken = user.Token
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func (s *Server) client(t testing.TB, user User) *http.Client {
	t.Helper()
	key := user.Name + " " + user.Token
	if client, found := s.clients.Load(key); found {
		return client.(*http.Client)
	}
	client, err := rest.HTTPClientFor(s.Config(user))
	if err != nil {
		t.Fatal(err)
	}
	s.clients.Store(key, client)
	return client
}

// Kubeconfig returns the path of the kubeconfig of administrators.
func (s *Server) Kubeconfig() string { return filepath.Join(s.Root, "admin.kubeconfig") }

func (s *Server) waitUntilReady() error {
	deadline := time.Now().Add(StartTimeout)
	for last := errors.New("no response"); ; {
		select {
		case <-s.exited:
			return fmt.Errorf("the server exited with %s", s.process.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server is not ready after %s: %w", StartTimeout, last)
		}
		if last = s.ready(); last == nil {
			return nil
		}
	}
}

// authorities returns the configuration that the server writes for administrators.
func (s *Server) authorities() (*rest.Config, error) {
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, "base", nil, nil).ClientConfig()
}

func (s *Server) ready() error {
	if s.base == nil {
		config, err := s.authorities()
		if err != nil {
			return err
		}
		s.base = config
	}
	client, err := rest.HTTPClientFor(s.Config(Anonymous))
	if err != nil {
		return err
	}
	client.Timeout = 5 * time.Second
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz returns %s", response.Status)
	}
	return nil
}

// panics are log messages that the libraries of the server write after a panic.
var panics = [][]byte{
	[]byte("Observed a panic"),
	[]byte("panic serving"),
	[]byte("apiserver panic'd"),
	[]byte("\npanic: "),
	[]byte("goroutine 1 ["),
}

// Panics returns an error if the log of the server contains a panic, with the lines around the first one.
func (s *Server) Panics() error {
	content, err := os.ReadFile(s.Log)
	if err != nil {
		return err
	}
	for _, text := range panics {
		if at := bytes.Index(content, text); at >= 0 {
			return fmt.Errorf("the server panicked:\n%s", content[max(0, at-500):min(len(content), at+4000)])
		}
	}
	return nil
}

func (s *Server) tail(lines int) string {
	content, err := os.ReadFile(s.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func writeTokens(file string, users ...User) error {
	var lines strings.Builder
	for _, u := range users {
		fmt.Fprintf(&lines, "%s,%s,uid-of-%s,\"%s\"\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	return os.WriteFile(file, []byte(lines.String()), 0o600)
}

// FreePort returns a port of the loopback address on which no process listens.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Suffix returns random characters that make a name unique.
func Suffix() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // crypto/rand never fails
	return hex.EncodeToString(random)
}
