package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/request/drain"
	"github.com/kcplane/kcp/server/internal/request/slowclient"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// requestsTimeout is how long requests may take when the proxy stops.
const requestsTimeout = 60 * time.Second

// Run serves until ctx ends. It calls announce once, when the proxy is ready for requests.
func Run(ctx context.Context, o *Options, announce func()) error {
	if err := o.complete(); err != nil {
		return err
	}
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}
	defer s.endWatches()
	if err := s.proxy.metrics.register(legacyregistry.Register, legacyregistry.CustomRegister, s.shards.index, s.shards.lags); err != nil {
		return err
	}
	return s.run(ctx, announce)
}

// server is the process around a Proxy.
type server struct {
	options    *Options
	proxy      *Proxy
	shards     *shardSet
	loader     *loader
	serving    *genericapiserver.SecureServingInfo
	stopping   chan struct{}
	endWatches context.CancelFunc
	background sync.WaitGroup
}

func newServer(ctx context.Context, o *Options) (*server, error) {
	s := &server{options: o, stopping: make(chan struct{})}
	if o.RootDirectory != "" && o.Serving.ServerCert.CertKey.CertFile == "" {
		if err := o.Serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
			return nil, fmt.Errorf("creating a serving certificate: %w", err)
		}
	}
	if err := o.Serving.ApplyTo(&s.serving); err != nil {
		return nil, err
	}
	if s.serving == nil {
		return nil, errors.New("--secure-port must not be 0")
	}
	authenticated, err := s.authentication(ctx)
	if err != nil {
		return nil, err
	}
	s.proxy = &Proxy{users: authenticated, groups: identity.NewFilter(o.DropGroups, o.PassOnGroups), metrics: newInstruments(),
		open: newOpenRequests(o.MaxOpenRequestsPerClient, o.MaxOpenRequests), clock: clock.RealClock{}}
	if s.proxy.audit, err = newRefusals(o.Audit); err != nil {
		return nil, err
	}
	s.proxy.ending, s.endWatches = context.WithCancel(context.WithoutCancel(ctx))
	return s, s.connect(index.New())
}

// connect reads the files, and prepares the connections to shards.
func (s *server) connect(table *index.Table) error {
	o, p := s.options, s.proxy
	s.loader = &loader{
		mappingFile: o.MappingFile, rootKubeconfig: o.RootKubeconfig, shardsKubeconfig: o.ShardsKubeconfig, clock: clock.RealClock{},
	}
	seeds := o.Shards
	if seeds == nil {
		seeds = map[string]string{}
	}
	if config, err := s.loader.kubeconfig(); err != nil {
		return err
	} else if _, set := seeds[peers.Root]; config != nil && !set {
		if seeds[peers.Root], err = baseOf(config.Host); err != nil {
			return err
		}
	}
	var err error
	if s.shards, err = newShards(table, o.RootDirectory, seeds, clock.RealClock{}); err != nil {
		return err
	}
	p.shards, s.loader.url = s.shards, s.shards.URL
	loaded, err := s.loader.load(nil)
	if err != nil {
		return err
	}
	p.files.Store(loaded)
	turns := tree.NewTurns()
	s.shards.follow = func(ctx context.Context, shard string, sink tree.Sink) {
		tree.Follow(ctx, currentPeers{&p.files, s.shards.count}, turns, shard, sink)
	}
	p.resolver = questions.New(questions.Config{
		Index: table, Shards: s.shards.Names, Clock: clock.RealClock{}, Asked: p.metrics.asked,
		Ask: func(ctx context.Context, shard string, q tree.Question) (tree.Answer, error) {
			return peers.Call[tree.Question, tree.Answer](ctx, p.files.Load().peers, shard, tree.CallResolve, q)
		},
	})
	return nil
}

// authentication returns how users are authenticated, and makes clients send certificates.
func (s *server) authentication(ctx context.Context) (users, error) {
	// These are needed for tokens in Secrets only, which the proxy does not authenticate.
	unused, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		return users{}, err
	}
	info := &genericapiserver.AuthenticationInfo{}
	err = s.options.Authentication.ApplyTo(ctx, info, s.serving, nil, &openapicommon.Config{}, nil, unused,
		informers.NewSharedInformerFactory(unused, 0), "kcp-front-proxy")
	if err != nil {
		return users{}, err
	}
	var authorities peers.Authorities
	if s.serving.ClientCA != nil {
		authorities = s.serving.ClientCA // without headers about users, so far it has those of users only
	}
	hint, err := clientcertificates.NewHint(time.Now())
	if err != nil {
		return users{}, err
	}
	return newUsers(info.Authenticator, authorities, info.RequestHeaderConfig, clock.RealClock{}), info.ApplyClientCert(hint, s.serving)
}

// handler returns the chain of filters, built from the innermost handler outwards.
func (s *server) handler() http.Handler {
	local := http.NewServeMux()
	alive := healthz.PingHealthz
	healthz.InstallLivezHandler(local, alive)
	healthz.InstallHandler(local, alive)
	healthz.InstallReadyzHandler(local, alive, s.ready())
	local.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		responsewriters.WriteRawJSON(http.StatusOK, s.options.Version, w)
	})
	local.Handle("/metrics", s.proxy.withAccess(legacyregistry.HandlerWithReset()))
	inCluster := authentication.WithInClusterServiceAccount(s.proxy)
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if below(r.URL.Path, "/livez", "/readyz", "/healthz") || r.URL.Path == "/metrics" || r.URL.Path == "/version" {
			local.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, shardPrefix) {
			s.proxy.ServeHTTP(w, r)
			return
		}
		inCluster.ServeHTTP(w, r)
	}))
	h = filters.WithCORS(h, s.options.CORSAllowedOrigins, nil, nil, nil, "true")
	h = drain.WithClose(h, s.stopping)
	return slowclient.New(s.options.StalledClientTimeout, clock.RealClock{}).WithTimeout(h)
}

// ready is the health check that fails until the index is complete, and when the proxy stops. In between, a shard that is added or does not
// respond makes no difference.
func (s *server) ready() healthz.HealthChecker {
	var complete atomic.Bool
	return healthz.NamedCheck("index", func(*http.Request) error {
		select {
		case <-s.stopping:
			return errors.New("the front proxy is stopping")
		default:
		}
		if complete.Load() {
			return nil
		}
		err := s.shards.Ready()
		complete.Store(err == nil)
		return err
	})
}

// run serves until ctx ends: then readiness fails first, open watches end, and other requests are finished.
func (s *server) run(ctx context.Context, announce func()) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.background.Go(func() { s.shards.run(working) })
	s.background.Go(func() { s.loader.reload(working, &s.proxy.files, s.proxy.metrics.stale) })
	defer s.background.Wait()
	defer stop()
	if s.options.ProfilerAddress != "" {
		if err := s.serveProfiles(working); err != nil {
			return err
		}
	}
	endAudit, err := s.proxy.audit.run()
	if err != nil {
		return err
	}
	defer endAudit()
	s.serving.Listener = slowclient.Listener(s.serving.Listener, s.options.StalledClientTimeout)
	closing := make(chan struct{})
	stopped, _, err := s.serving.Serve(s.handler(), requestsTimeout, closing)
	if err != nil {
		close(closing)
		return err
	}
	s.background.Go(func() { s.announce(working, announce) })
	<-ctx.Done()
	klog.InfoS("Stopping the front proxy", decisionlog.Seconds, s.options.ShutdownDelay.Seconds())
	close(s.stopping)
	<-time.After(s.options.ShutdownDelay)
	s.endWatches()
	close(closing)
	<-stopped
	return nil
}

// announce calls f when the index is complete.
func (s *server) announce(ctx context.Context, f func()) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for s.shards.Ready() != nil {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	f()
}

func (s *server) serveProfiles(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.options.ProfilerAddress)
	if err != nil {
		return fmt.Errorf("--profiler-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	profiles := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = profiles.Close() })
	s.background.Go(func() { _ = profiles.Serve(listener) })
	return nil
}

// currentPeers opens streams with the certificates that are in use when they begin.
type currentPeers struct {
	files *atomic.Pointer[files]
	// shards returns the number of shards.
	shards func() int
}
