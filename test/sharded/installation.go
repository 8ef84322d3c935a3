package sharded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Root is the name of the root shard.
const Root = "root"

// Options say which processes an installation consists of.
type Options struct {
	// Shards is the number of shards besides the root shard.
	Shards int
	// Cache starts a cache server. Without it, the root shard is the cache server.
	Cache bool
	// Proxies is the number of front proxies.
	Proxies int
	// Port is the port of the first front proxy, or of the root shard if there is no proxy. If it is zero, any port is used.
	Port int
	// Users are the users whose tokens all shards accept.
	Users []kcptest.User
	// ProxyUsers are the users whose tokens the front proxies accept. Proxies pass other tokens on.
	ProxyUsers []kcptest.User
	// Relays puts a Relay in front of every process.
	Relays bool
	// Distance is the time by which the Relays prolong each round trip between two processes.
	Distance time.Duration
	// ShardFlags are further flags of every shard.
	ShardFlags []string
	// Former are the names of the processes that run the former version, which make former builds.
	Former []string
}

// Installation is a number of processes that are one kcp.
type Installation struct {
	// Directory contains everything: data, certificates, configurations and logs.
	Directory string
	PKI       *PKI
	// Shards are all shards, the root shard first.
	Shards []*Process
	// Cache is the cache server, or nil.
	Cache   *Process
	Proxies []*Process

	options Options
}

// Start starts all processes of an installation at once, and returns when they are ready. After Stop, another Start with the same directory
// uses the stored data, with other addresses and certificates.
func Start(dir string, options Options) (*Installation, error) {
	i, err := Prepare(dir, options)
	if err != nil {
		return nil, err
	}
	if err := i.Begin(); err != nil {
		i.Kill()
		return nil, err
	}
	return i, nil
}

// Prepare writes the certificates and the configurations of all processes, and starts none.
func Prepare(dir string, options Options) (*Installation, error) {
	dir, err := filepath.Abs(dir) // processes and kubeconfigs refer to it
	if err != nil {
		return nil, err
	}
	i := &Installation{Directory: dir, options: options}
	if i.PKI, err = NewPKI(filepath.Join(dir, "pki")); err != nil {
		return nil, err
	}
	if err := i.choosePlaces(); err != nil {
		return nil, err
	}
	if err := i.chooseVersions(); err != nil {
		return nil, err
	}
	return i, errors.Join(i.configureCache(), i.configureShards(), i.configureProxies(), i.writeKubeconfig())
}

// choosePlaces chooses the directory and the address of each process, to which the configurations of the others refer.
func (i *Installation) choosePlaces() error {
	port := func(first bool) int {
		if first {
			return i.options.Port
		}
		return 0
	}
	for n := range i.options.Proxies {
		proxy, err := i.place(proxyName(n), port(n == 0))
		if err != nil {
			return err
		}
		i.Proxies = append(i.Proxies, proxy)
	}
	for n := range i.options.Shards + 1 {
		name := Root
		if n > 0 {
			name = fmt.Sprintf("shard-%d", n)
		}
		shard, err := i.place(name, port(n == 0 && i.options.Proxies == 0))
		if err != nil {
			return err
		}
		i.Shards = append(i.Shards, shard)
	}
	if !i.options.Cache {
		return nil
	}
	var err error
	i.Cache, err = i.place("cache", 0)
	return err
}

// chooseVersions makes some processes run the former version.
func (i *Installation) chooseVersions() error {
	all := i.Processes()
	for _, name := range i.options.Former {
		n := slices.IndexFunc(all, func(p *Process) bool { return p.Name == name })
		if n < 0 {
			return fmt.Errorf("no process is named %q, which should run the former version", name)
		}
		all[n].program = filepath.Join("former", all[n].program)
	}
	return nil
}

// URL is the URL of the installation for users.
func (i *Installation) URL() string {
	if len(i.Proxies) > 0 {
		return i.Proxies[0].URL
	}
	return i.Root().URL
}

// Root is the root shard.
func (i *Installation) Root() *Process { return i.Shards[0] }

// Processes are all processes, in the order in which an administrator starts them.
func (i *Installation) Processes() []*Process {
	var all []*Process
	if i.Cache != nil {
		all = append(all, i.Cache)
	}
	return slices.Concat(all, i.Shards, i.Proxies)
}

// Begin starts all processes at once, and returns when all are ready.
func (i *Installation) Begin() error {
	for _, p := range i.Processes() {
		if err := p.Begin(); err != nil {
			return err
		}
	}
	for _, p := range i.Processes() {
		if err := p.AwaitReady(); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops all processes, and returns an error if one of them fails or has panicked.
func (i *Installation) Stop() error {
	var errs []error
	all := i.Processes()
	slices.Reverse(all)
	for _, p := range all {
		if p.Process != nil {
			errs = append(errs, p.Stop(), p.Panics())
		}
		if p.Relay != nil {
			p.Relay.close()
		}
	}
	return errors.Join(errs...)
}

// Wait waits until ctx ends, or returns an error if a process exits before that.
func (i *Installation) Wait(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, p := range i.Processes() {
		go func() {
			select {
			case <-p.Exited():
				cancel(fmt.Errorf("%s exited; its log is %s", p.Name, p.Log))
			case <-ctx.Done():
			}
		}()
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return nil
}

// Kill kills all processes.
func (i *Installation) Kill() {
	for _, p := range i.Processes() {
		if p.Process != nil {
			p.Kill()
		}
		if p.Relay != nil {
			p.Relay.close()
		}
	}
}
