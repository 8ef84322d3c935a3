package sharded

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Process is one process of an installation. It can be stopped and started again, with the same address and data.
type Process struct {
	// Kcptest is the process that runs now, or ran last.
	*kcptest.Process
	// Name is unique in the installation, such as root, shard-1, proxy-1 or cache.
	Name string
	// URL is the URL of the process, without a path.
	URL string
	// Relay is the network between this process and the other processes, which do not use URL. It is nil unless Options.Relays is set.
	Relay *Relay
	// Directory contains the data of the process.
	Directory string

	log string
	// program is kcp, or that of the former version. subcommand and arguments are those of the program.
	program    string
	subcommand string
	arguments  []string
	client     *http.Client
	server     *kcptest.Server
}

// place chooses the directory and the address of a process. If port is zero, any port is used.
func (i *Installation) place(name string, port int) (p *Process, err error) {
	if port == 0 {
		if port, err = kcptest.FreePort(); err != nil {
			return nil, err
		}
	}
	serving, err := i.PKI.Serve(name)
	if err != nil {
		return nil, fmt.Errorf("issuing the serving certificate of %s: %w", name, err)
	}
	p = &Process{
		Name: name, URL: fmt.Sprintf("https://127.0.0.1:%d", port), Directory: filepath.Join(i.Directory, name),
		log: filepath.Join(i.Directory, name+".log"), program: "kcp",
		client: &http.Client{
			Timeout:   5 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: i.PKI.Serving.Pool()}, DisableKeepAlives: true},
		},
	}
	authorities, err := os.ReadFile(i.PKI.Serving.File)
	if err != nil {
		return nil, err
	}
	p.server = kcptest.At(p.URL, authorities)
	p.arguments = []string{
		"--root-directory=" + p.Directory, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + serving.Cert, "--tls-private-key-file=" + serving.Key,
	}
	if i.options.Relays {
		if p.Relay, err = newRelay(fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			return nil, err
		}
		p.Relay.Delay(i.options.Distance / 2)
	}
	return p, os.MkdirAll(p.Directory, 0o700)
}

// InternalURL is the URL of the process for other processes.
func (p *Process) InternalURL() string {
	if p.Relay != nil {
		return p.Relay.URL
	}
	return p.URL
}

// Begin starts the process, without waiting until it is ready.
func (p *Process) Begin() error { return p.begin() }

// StartWith is Start with further flags, for this time only.
func (p *Process) StartWith(flags ...string) error {
	if err := p.begin(flags...); err != nil {
		return err
	}
	return p.AwaitReady()
}

func (p *Process) begin(flags ...string) error {
	started, err := kcptest.BeginProcess(p.Name, p.log, p.program, slices.Concat([]string{p.subcommand}, p.arguments, flags)...)
	if err != nil {
		return err
	}
	p.Process = started
	return nil
}

// AwaitReady returns when the process is ready. If it does not become ready, AwaitReady kills it and returns an error.
func (p *Process) AwaitReady() error { return p.Process.AwaitReady(p.ready) }

// Start starts the process, and returns when it is ready.
func (p *Process) Start() error {
	if err := p.Begin(); err != nil {
		return err
	}
	return p.AwaitReady()
}

func (p *Process) ready() error {
	response, err := p.client.Get(p.URL + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz returns %s", response.Status)
	}
	return nil
}

// Server returns the process for clients of tests.
func (p *Process) Server() *kcptest.Server { return p.server }
