package server

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/request/bodylimit"
)

// cacheSuffix follows the prefix of all keys in the keys of the cache that the root shard serves.
const cacheSuffix = "-cache"

// cache is the cache server within the root shard.
type cache struct {
	handler *cacheserver.Handler
	// administrators are the authorities of their certificates, nil if there are none.
	administrators *dynamiccertificates.DynamicFileCAContent
}

// newCache returns the cache server of an installation without --cache-kubeconfig.
func (i *installation) newCache(ctx context.Context) (*cache, error) {
	c := &cache{}
	config := cacheserver.Config{
		Backend: i.backend.Beside(i.opts.Generic.Etcd.StorageConfig.Prefix + cacheSuffix), Peers: i.authorities, Clock: clock.RealClock{},
		Stopping: ctx,
	}
	if file := i.opts.Generic.Authentication.ClientCert.ClientCA; file != "" {
		var err error
		if c.administrators, err = dynamiccertificates.NewDynamicCAContentFromFile("cache-client-ca", file); err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		config.Administrators = byCertificate(c.administrators)
	}
	var err error
	c.handler, err = cacheserver.New(config)
	return c, err
}

// byCertificate authenticates clients by certificates that authorities have signed.
func byCertificate(authorities *dynamiccertificates.DynamicFileCAContent) authenticator.Request {
	return x509.NewDynamic(authorities.VerifyOptions, x509.CommonNameUserConversion)
}

// with serves the API of the cache server, and passes other requests to next.
func (c *cache) with(next http.Handler) http.Handler {
	return cacheserver.WithCache(bodylimit.WithText(c.handler), next)
}

func (c *cache) run(ctx context.Context) {
	if c.administrators != nil {
		go c.administrators.Run(ctx, 1)
	}
	c.handler.Run(ctx)
}
