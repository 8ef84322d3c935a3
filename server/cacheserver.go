package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/request/bodylimit"
	"github.com/kcplane/kcp/server/internal/request/drain"
	"github.com/kcplane/kcp/server/internal/request/slowclient"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/options"
)

// cacheGrace is the time that a stopping cache server waits for its requests.
const cacheGrace = 10 * time.Second

// RunCacheServer runs a cache server until ctx ends. announce is called when it is ready.
func RunCacheServer(ctx context.Context, opts options.CompletedCacheServer, announce func()) error {
	if err := fixFeatures(); err != nil {
		return err
	}
	embedded := &opts.EmbeddedEtcd
	if !opts.Embedded {
		embedded = nil
	}
	backend, fatal, closeStorage, err := openStorage(ctx, opts.Etcd.StorageConfig, embedded)
	if err != nil {
		return err
	}
	defer closeStorage()
	if err := backend.RegisterMetrics(legacyregistry.Register); err != nil {
		return err
	}
	if err := backend.Register(legacyregistry.Register); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving *genericapiserver.SecureServingInfo
	if err := opts.Serving.ApplyTo(&serving); err != nil {
		return err
	}
	s := &cacheServer{opts: opts, backend: backend, serving: serving}
	if err := s.prepare(ctx); err != nil {
		_ = serving.Listener.Close()
		return err
	}
	stopped, _, err := serving.Serve(s.chain(ctx), cacheGrace, ctx.Done())
	if err != nil {
		return err
	}
	go s.handler.Run(ctx)
	announce()
	select {
	case err = <-fatal:
		klog.FromContext(ctx).Error(err, "Stopping the cache server: its storage is unusable")
		cancel(err)
	case <-ctx.Done():
	}
	<-stopped
	return err
}

// cacheServer contains the parts of kcp cache-server.
type cacheServer struct {
	opts    options.CompletedCacheServer
	backend *storage.Backend
	serving *genericapiserver.SecureServingInfo
	handler *cacheserver.Handler
}

// prepare creates the handler and loads the authorities of clients, which it follows until ctx ends.
func (s *cacheServer) prepare(ctx context.Context) error {
	config := cacheserver.Config{
		Backend: s.backend, AdministratorsWrite: s.opts.AdministratorsWrite, Clock: clock.RealClock{}, Stopping: ctx,
	}
	var authorities []dynamiccertificates.CAContentProvider
	load := func(flag, file string) (*dynamiccertificates.DynamicFileCAContent, error) {
		loaded, err := dynamiccertificates.NewDynamicCAContentFromFile(flag, file)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		authorities = append(authorities, loaded)
		return loaded, nil
	}
	if s.opts.PeerCA != "" {
		peers, err := load("peer-client-ca-file", s.opts.PeerCA)
		if err != nil {
			return err
		}
		config.Peers = peers
	}
	if s.opts.ClientCA != "" {
		clients, err := load("client-ca-file", s.opts.ClientCA)
		if err != nil {
			return err
		}
		config.Administrators = byCertificate(clients)
	}
	if s.opts.MetricsCA != "" {
		scrapers, err := load("metrics-client-ca-file", s.opts.MetricsCA)
		if err != nil {
			return err
		}
		config.Scrapers = byCertificate(scrapers)
	}
	s.serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(slices.Clone(authorities)...) // Serve follows the files
	var err error
	s.handler, err = cacheserver.New(config)
	return err
}

// chain returns the handler of all requests. stopping ends when the server begins to stop.
func (s *cacheServer) chain(stopping context.Context) http.Handler {
	top := http.NewServeMux()
	top.Handle("/metrics", s.handler.ForScrapers(legacyregistry.Handler()))
	etcd := healthz.NamedCheck("etcd", func(r *http.Request) error { return s.backend.Ping(r.Context()) })
	room := healthz.NamedCheck("etcd-space", func(*http.Request) error { return s.backend.CheckRoom() })
	serves := healthz.NamedCheck("shutdown", func(*http.Request) error { return context.Cause(stopping) })
	healthz.InstallLivezHandler(top, healthz.PingHealthz)
	healthz.InstallHandler(top, healthz.PingHealthz, etcd)
	healthz.InstallReadyzHandler(top, etcd, room, serves)
	h := cacheserver.WithCache(bodylimit.WithText(s.handler), top)
	h = drain.WithClose(h, stopping.Done())
	return slowclient.New(s.opts.StalledClientTimeout, clock.RealClock{}).WithTimeout(h)
}
