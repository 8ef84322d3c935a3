package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

const (
	// changesPerSecond is the rate of new workspaces, of which lagSamples are measured in each second.
	changesPerSecond, lagSamples = 1000, 10
	// idleFor is how long an idle process is observed.
	idleFor = 10 * time.Second
)

// standinsRun measures a front proxy and a cache server with stand-ins of shards.
type standinsRun struct {
	scale    scale
	dir      string
	pki      *sharded.PKI
	all      *standins
	proxy    *process
	rows     []row
	stopping []func()
}

// runStandins measures one front proxy and one cache server, each with n stand-ins of shards.
func runStandins(ctx context.Context, n int, s scale) error {
	bin, dir, err := prepareWith("kcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("KCP_BIN", bin); err != nil {
		return err
	}
	r := &standinsRun{scale: s, dir: dir, all: newStandins(n)}
	defer func() {
		for _, stop := range r.stopping {
			stop()
		}
		printTable(os.Stdout, r.rows)
	}()
	if r.pki, err = sharded.NewPKI(filepath.Join(dir, "pki")); err != nil {
		return err
	}
	if err := r.serve(); err != nil {
		return err
	}
	for _, measure := range []func(context.Context) error{r.proxies, r.through, r.idleProxy, r.lag, r.feed} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ofStandins names the sides of the rows.
var ofStandins = &pair{"kcp", "baseline"}

func (r *standinsRun) add(rows ...row) {
	for i := range rows {
		rows[i].Pair = ofStandins
	}
	r.rows = append(r.rows, report(rows)...)
}

// serve serves all stand-ins, each at a port of its own.
func (r *standinsRun) serve() error {
	serving, err := r.pki.Serve("standin")
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return err
	}
	r.all.server = &http.Server{
		Handler: r.all, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert},
	}
	for _, s := range r.all.shards {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		var port int
		s.url, port = urlOf(l)
		r.all.byPort[port] = s
		go func() { _ = r.all.server.ServeTLS(l, "", "") }()
	}
	r.stopping = append(r.stopping, func() { _ = r.all.server.Close() })
	return nil
}

// begin starts a program of kcp, and returns when it is ready.
func (r *standinsRun) begin(ctx context.Context, user kcptest.User, subcommand string, flags ...string) (*process, error) {
	port, err := kcptest.FreePort()
	if err != nil {
		return nil, err
	}
	serving, err := r.pki.Serve(subcommand)
	if err != nil {
		return nil, err
	}
	args := append([]string{
		subcommand, "--root-directory=" + filepath.Join(r.dir, subcommand), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + serving.Cert, "--tls-private-key-file=" + serving.Key,
	}, flags...)
	started, err := kcptest.BeginProcess(subcommand, filepath.Join(r.dir, subcommand+".log"), "kcp", args...)
	if err != nil {
		return nil, err
	}
	r.stopping = append(r.stopping, started.Kill)
	tlsConfig := rest.TLSClientConfig{CAFile: r.pki.Serving.File}
	if user.Token == "" {
		admin, err := r.pki.Client(user)
		if err != nil {
			return nil, err
		}
		tlsConfig.CertFile, tlsConfig.KeyFile = admin.Cert, admin.Key
	}
	p := &process{name: subcommand, others: []int{started.ID()}, config: &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: user.Token, QPS: -1, TLSClientConfig: tlsConfig,
	}}
	return p, p.ready(ctx)
}

// startProxy starts a front proxy, and returns how long it takes until it is ready.
func (r *standinsRun) startProxy(ctx context.Context) (time.Duration, error) {
	peer, err := r.pki.Peer(sharded.KindProxy, "proxy-1")
	if err != nil {
		return 0, err
	}
	ca, err := os.ReadFile(r.pki.Serving.File)
	if err != nil {
		return 0, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[rootShard] = &clientcmdapi.Cluster{Server: r.all.shards[0].url, CertificateAuthorityData: ca}
	config.AuthInfos[rootShard] = &clientcmdapi.AuthInfo{ClientCertificate: peer.Cert, ClientKey: peer.Key}
	config.Contexts[rootShard] = &clientcmdapi.Context{Cluster: rootShard, AuthInfo: rootShard}
	config.CurrentContext = rootShard
	kubeconfig, tokens := filepath.Join(r.dir, "proxy.kubeconfig"), filepath.Join(r.dir, "proxy-tokens.csv")
	if err := errors.Join(clientcmd.WriteToFile(*config, kubeconfig), kcptest.WriteTokens(tokens, kcptest.Alice)); err != nil {
		return 0, err
	}
	return took(func() error {
		r.proxy, err = r.begin(ctx, kcptest.Alice, "front-proxy", "--root-kubeconfig="+kubeconfig, "--token-auth-file="+tokens)
		return err
	})
}

// proxies measures the start of a front proxy with all shards, and its index.
func (r *standinsRun) proxies(ctx context.Context) error {
	shards := len(r.all.shards) - 1
	want := 1 + shards*organizationsEach*(1+workspacesEach)
	for _, when := range []string{"first start", "start with stored state"} {
		if r.proxy != nil {
			last := len(r.stopping) - 1
			r.stopping[last]()
			r.stopping = r.stopping[:last]
		}
		began := time.Now()
		ready, err := r.startProxy(ctx)
		if err == nil { // a front proxy is ready without shards that have not responded at first
			err = r.proxy.waitForMetric(ctx, "indexed_logicalclusters", float64(want))
		}
		if err != nil {
			return err
		}
		d := time.Since(began)
		r.add(row{What: fmt.Sprintf("front proxy, %s: index complete with %d workspaces of %d shards (ready after %.1f s)", when, want, shards,
			ready.Seconds()), Unit: "s", Ours: d.Seconds(), Budget: "≤ 5 s", Met: d <= 5*time.Second},
			row{What: "processor time of the front proxy for that", Unit: "s", Ours: r.proxy.cpu().Seconds()})
	}
	bytes, err := r.proxy.metric(ctx, "kcp_front_proxy_index_bytes")
	each := bytes / float64(want)
	r.add(row{What: "index for each workspace", Unit: "bytes", Ours: each, Budget: "≤ 100", Met: each <= 100},
		row{What: "resident memory of the front proxy", Unit: "MiB", Ours: r.proxy.resident() / (1 << 20)})
	return err
}

// through measures requests through the front proxy to all shards, beside the same requests to the stand-ins themselves.
func (r *standinsRun) through(ctx context.Context) error {
	direct := &process{name: "stand-in", others: []int{os.Getpid()}, config: rest.CopyConfig(r.proxy.config)}
	direct.config.Host = r.all.shards[1].url
	if err := direct.connect(); err != nil {
		return err
	}
	get := func(p *process) operation {
		return operation{name: "get", do: func(ctx context.Context, c, _ int) error {
			shard := 1 + rand.IntN(len(r.all.shards)-1)
			_, err := p.send(ctx, c, http.MethodGet, workspacePath(shard, rand.IntN(organizationsEach), rand.IntN(workspacesEach))+"/api/v1", nil)
			return err
		}}
	}
	for _, clients := range []int{1, 32} {
		what := fmt.Sprintf("get in a random workspace, %d clients", clients)
		got, err := alternate(ctx, []*process{r.proxy, direct}, clients, r.scale, what, get)
		if err != nil {
			return err
		}
		r.add(throughputRow(what+" (second column: a stand-in without a front proxy)", "1/s", got[0], got[1], 0))
	}
	return nil
}

// busyness returns the share of one processor that a process uses while f runs.
func busyness(p *process, f func() error) (float64, error) {
	before, began := p.cpu(), time.Now()
	err := f()
	return 100 * float64(p.cpu()-before) / float64(time.Since(began)), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// idleProxy measures what bookmarks cost.
func (r *standinsRun) idleProxy(ctx context.Context) error {
	if err := pause(ctx, idleFor/2); err != nil {
		return err
	}
	share, err := busyness(r.proxy, func() error { return pause(ctx, idleFor) })
	r.add(row{What: fmt.Sprintf("processor time of the idle front proxy of %d shards", len(r.all.shards)), Unit: "%", Ours: share})
	return err
}

// lag measures how long after a shard has said so a new workspace is in the index, at a constant rate of changes.
func (r *standinsRun) lag(ctx context.Context) error {
	var mu sync.Mutex
	var all []time.Duration
	var sampled errgroup.Group
	asked := r.all.asked.Load()
	share, err := busyness(r.proxy, func() error {
		_, err := pace(ctx, changesPerSecond, 10*r.scale.slice, func(ctx context.Context, i int) (time.Duration, error) {
			shard, org := 1+i%(len(r.all.shards)-1), i%organizationsEach
			p := workspaceAt(shard, org, workspacesEach+i)
			r.all.shards[shard].add(p)
			if i%(changesPerSecond/lagSamples) != 0 {
				return 0, nil
			}
			sampled.Go(func() error {
				d, err := took(func() error { return r.indexed(ctx, workspacePath(shard, org, workspacesEach+i)) })
				mu.Lock()
				defer mu.Unlock()
				all = append(all, d)
				return err
			})
			return 0, nil
		})
		return errors.Join(err, sampled.Wait())
	})
	if err != nil {
		return err
	}
	l := summarize(all, time.Second)
	r.add(
		limit(
			fmt.Sprintf("lag of the index at %d changes a second: p99 of %d (p50 %s ms, %d of them asked the shard)", changesPerSecond, len(all),
				number(milliseconds(l.p50)), r.all.asked.Load()-asked),
			l.p99,
			time.Second,
		),
		row{What: "processor time of the front proxy during that", Unit: "%", Ours: share},
	)
	return nil
}

// indexed returns when the front proxy forwards requests for a workspace. Stand-ins answer no question about new workspaces.
func (r *standinsRun) indexed(ctx context.Context, workspace string) error {
	for {
		code, answer, err := r.proxy.do(ctx, 0, http.MethodGet, workspace+"/api/v1", "")
		switch {
		case err != nil || code == http.StatusOK:
			return err
		case code != http.StatusForbidden && code != http.StatusTooManyRequests:
			return fmt.Errorf("%s: %d %s", workspace, code, answer)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
