package kcptest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	public "github.com/kcplane/kcp/client/kcptest"
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
	*Process

	// installed is the installation that the server is a front proxy of, if there is one.
	installed *Installed
	// oneShard puts all logical clusters of a test on one shard, which seed selects. placed has the URLs of their shards.
	oneShard bool
	seed     maphash.Seed
	placed   sync.Map
	// base has the certificate authorities with which clients verify the server.
	base    *rest.Config
	clients sync.Map // user → *http.Client: one connection for each user, regardless of the number of clients
}

// Main is the TestMain of a package: it starts a server, stores it, runs the tests and stops the server. If InstalledVariable is set, the
// server is a front proxy of an installation that runs already.
func Main(m *testing.M, server **Server, flags ...string) {
	os.Exit(run(m, server, false, flags))
}

// MainOnOneShard is Main for tests that read the logical clusters of a test at one URL: in an installation they are on one shard, which is
// another one for each test.
func MainOnOneShard(m *testing.M, server **Server) {
	os.Exit(run(m, server, true, nil))
}

func run(m *testing.M, server **Server, oneShard bool, flags []string) int {
	if file := os.Getenv(InstalledVariable); file != "" {
		s, err := installed(file)
		if err == nil && len(flags) > 0 {
			err = fmt.Errorf("%s: the tests of this package need a server with %s", InstalledVariable, strings.Join(flags, " "))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		s.oneShard = oneShard
		*server = s
		return m.Run()
	}
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
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return begin("start", dir, port, flags...)
}

// StartViewsIn starts a process that serves the virtual workspaces of a server with the same etcd, until the test ends.
func StartViewsIn(t testing.TB, dir string, port int, flags ...string) *Server {
	t.Helper()
	s, err := begin("virtual-workspaces", dir, port, flags...)
	if err == nil {
		err = s.AwaitReady()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func begin(subcommand, dir string, port int, flags ...string) (*Server, error) {
	tokens := filepath.Join(dir, "tokens.csv")
	if err := WriteTokens(tokens, Alice, Bob, Victor, Stranger, Masters); err != nil {
		return nil, err
	}
	s := &Server{URL: fmt.Sprintf("https://127.0.0.1:%d", port), Root: filepath.Join(dir, "kcp")}
	var err error
	s.Process, err = BeginProcess("the server", filepath.Join(dir, "kcp.log"), "kcp", append([]string{
		subcommand, "--root-directory=" + s.Root, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--token-auth-file=" + tokens,
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	if config, err := s.authorities(); err == nil {
		s.base = config
	}
	return s, nil
}

// AwaitReady returns when the server is ready. If it does not become ready, AwaitReady stops it and returns an error.
func (s *Server) AwaitReady() error { return s.Process.AwaitReady(s.ready) }

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

// WriteTokens writes a file for --token-auth-file.
func WriteTokens(file string, users ...User) error {
	var lines strings.Builder
	for _, u := range users {
		fmt.Fprintf(&lines, "%s,%s,uid-of-%s,\"%s\"\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	return os.WriteFile(file, []byte(lines.String()), 0o600)
}

// FreePort returns a port of the loopback address on which no process listens, each only once.
func FreePort() (int, error) {
	return public.FreePort()
}

// FreeAddress returns an unused address of this machine.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// Suffix returns random characters that make a name unique.
func Suffix() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // crypto/rand never fails
	return hex.EncodeToString(random)
}
