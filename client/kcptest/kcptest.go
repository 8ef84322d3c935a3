// Package kcptest tests API definitions and controllers with a real kcp. Start runs a server on this machine, and Server.Workspace gives
// each test a workspace of its own: an empty cluster, created within milliseconds, in which the test has all permissions and which other
// tests do not see. Tests may run in parallel.
//
// Main is a TestMain that starts a server for all tests of a package. The program kcp must be installed, see Options.Binary. The test of
// this package is an example: it tests the validation of an API, and a controller that serves all consumers of that API.
package kcptest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// program is the name of the kcp executable.
	program = "kcp"
	// startTimeout limits the time until a server is ready, and stopTimeout the time until it has exited.
	startTimeout, stopTimeout = 2 * time.Minute, 30 * time.Second
	// pollInterval is the time between two checks of whether something is ready.
	pollInterval = 20 * time.Millisecond
	// logTail is the number of bytes at the end of the server's log that an error includes.
	logTail = 4 << 10
)

// Options configure a server. The zero value is a server with defaults.
type Options struct {
	// Binary is the path of the kcp executable. If it is empty, the environment variable KCP_BIN is the path of the executable or of its
	// directory. If that is empty too, Start looks for kcp in PATH.
	Binary string
	// Arguments are flags of kcp start, in addition to those that set the root directory and the port.
	Arguments []string
	// Log receives the log of the server. If it is nil, only errors of Start and Stop include the end of the log.
	Log io.Writer
}

// Server is a running kcp.
type Server struct {
	config    *rest.Config
	directory string
	log       string
	process   *exec.Cmd
	exited    chan struct{}
}

// Main is the TestMain of a package: it starts a server, sets *server, runs the tests, stops the server and exits.
func Main(m *testing.M, server **Server, options Options) {
	os.Exit(run(m, server, options))
}

func run(m *testing.M, server **Server, options Options) (code int) {
	started, err := Start(context.Background(), options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := started.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	*server = started
	return m.Run()
}

// Start runs a server that stores its data in a temporary directory, and returns when the server is ready. If ctx ends before that, Start
// stops the server and returns an error. The caller must stop the server.
func Start(ctx context.Context, options Options) (*Server, error) {
	binary, err := find(options.Binary)
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "kcptest-")
	if err != nil {
		return nil, fmt.Errorf("creating the root directory of kcp: %w", err)
	}
	s := &Server{directory: directory, log: filepath.Join(directory, "kcp.log"), exited: make(chan struct{})}
	if err := s.start(ctx, binary, options); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w%s", binary, err, s.tail()), s.kill())
	}
	return s, nil
}

// find returns the path of the kcp executable.
func find(binary string) (string, error) {
	binary = cmp.Or(binary, os.Getenv("KCP_BIN"))
	if binary == "" {
		found, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("finding %s: %w; install it, or set the environment variable KCP_BIN to its path", program, err)
		}
		return found, nil
	}
	info, err := os.Stat(binary)
	if err == nil && info.IsDir() {
		binary = filepath.Join(binary, program)
		_, err = os.Stat(binary)
	}
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", program, err)
	}
	return binary, nil
}

func (s *Server) start(ctx context.Context, binary string, options Options) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	root := filepath.Join(s.directory, "root")
	s.process = exec.Command(binary, append([]string{
		"start", "--root-directory=" + root, "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
	}, options.Arguments...)...)
	s.process.SysProcAttr = attributes()
	s.process.Stdout, s.process.Stderr = log, log
	if options.Log != nil {
		both := io.MultiWriter(log, options.Log)
		s.process.Stdout, s.process.Stderr = both, both
	}
	if err := s.process.Start(); err != nil {
		s.process = nil
		return err
	}
	go func() {
		_ = s.process.Wait()
		close(s.exited)
	}()
	return s.awaitReady(ctx, filepath.Join(root, "admin.kubeconfig"))
}

// awaitReady returns when the server is ready. The server writes its kubeconfig before that.
func (s *Server) awaitReady(ctx context.Context, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.poll(ctx, func() error {
		if s.config == nil {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			config.QPS = -1 // no limit on the client's side: it would only slow tests down
			s.config = config
		}
		return s.ready(ctx)
	})
}

func (s *Server) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/readyz", nil)
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

// poll calls check until it returns nil. If the server exits or ctx ends before that, poll returns an error.
func (s *Server) poll(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server exited with %s", s.process.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// url returns the URL of the server without the path of a workspace.
func (s *Server) url() string {
	url, _, _ := strings.Cut(s.config.Host, "/clusters/")
	return url
}

// Config returns the configuration of a client with all permissions in a workspace. path is the path of the workspace or the name of its
// logical cluster. The caller may change the configuration.
func (s *Server) Config(path string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Host = s.url() + "/clusters/" + path
	return config
}

// Stop stops the server and removes its data. It returns an error if the server exited before, or exits with an error.
func (s *Server) Stop() error {
	if err := s.process.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("stopping kcp: %w", err), s.kill())
	}
	var err error
	select {
	case <-s.exited:
		if !s.process.ProcessState.Success() {
			err = fmt.Errorf("kcp exited with %s%s", s.process.ProcessState, s.tail())
		}
	case <-time.After(stopTimeout):
		err = fmt.Errorf("stopping kcp: it is still running after %s%s", stopTimeout, s.tail())
	}
	return errors.Join(err, s.kill())
}

// kill kills the process, if it was started, and removes its data.
func (s *Server) kill() error {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.exited
	}
	return os.RemoveAll(s.directory)
}

// tail returns the end of the log as a suffix for an error.
func (s *Server) tail() string {
	content, err := os.ReadFile(s.log)
	if content = bytes.TrimSpace(content); err != nil || len(content) == 0 {
		return ""
	}
	return "; the end of its log:\n" + string(content[max(0, len(content)-logTail):])
}

// Ports that clients of this machine are given for their connections begin above these.
const firstPort, ports = 20000, 10000

// given are the ports that FreePort returned.
var given sync.Map

// FreePort returns a port of the loopback address on which no process listens, for a process that a test starts. No port is returned twice.
func FreePort() (int, error) {
	for range ports {
		port := firstPort + rand.IntN(ports)
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("finding a free port: all are in use")
}
