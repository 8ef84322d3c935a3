package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/outbound"
)

const (
	dialTimeout = 20 * time.Second
	// A member that disappears without closing the connection is detected after silence, or after unheard without an
	// acknowledgement of sent data. Another member is tried soon, and often; behind a Service it can have the same address.
	silence, unheard            = 10 * time.Second, 5 * time.Second
	redialSoonest, redialLatest = 50 * time.Millisecond, 2 * time.Second
	// connectTimeout is how long a member may take to accept a new connection before the next attempt, which can reach another
	// member behind a Service.
	connectTimeout = time.Second
	// reachTimeout is how long the server waits for etcd when it starts.
	reachTimeout, reachInterval = time.Minute, 2 * time.Second
)

// Dial connects to the etcd servers of a storage configuration, and waits until one of them is reachable. It does not wait for a
// server with an untrusted certificate. reverted is called once if etcd was restored to an older state or replaced by another etcd.
func Dial(ctx context.Context, config storagebackend.TransportConfig, reverted func(error)) (*clientv3.Client, error) {
	var tlsConfig *tls.Config
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		var err error
		tlsConfig, err = transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("TLS of etcd client: %w", err)
		}
		outbound.KeepCertificate(tlsConfig)
	}
	if err := reach(ctx, config.ServerList, tlsConfig); err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            config.ServerList,
		TLS:                  tlsConfig,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    silence,
		DialKeepAliveTimeout: unheard,
		DialOptions: append(newContact(len(config.ServerList), reverted).dialOptions(), grpc.WithDisableServiceConfig(),
			redial(), grpc.WithStatsHandler(
				// The provider is that of the process: the server sets it after it has read the tracing
				// configuration.
				otelgrpc.NewClientHandler(otelgrpc.WithPropagators(tracing.Propagators())),
			)),
	})
}

// redial configures the backoff and the timeout of connections.
func redial() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: redialSoonest, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialLatest},
		MinConnectTimeout: connectTimeout,
	})
}

// reach waits until a connection to one of the servers succeeds, or returns an error.
func reach(ctx context.Context, servers []string, tlsConfig *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, reachInterval, true, func(ctx context.Context) (bool, error) {
		for _, server := range servers {
			if last = knock(ctx, server, tlsConfig); last == nil {
				return true, nil
			}
			var untrusted *tls.CertificateVerificationError
			if errors.As(last, &untrusted) {
				return false, last
			}
		}
		klog.FromContext(ctx).Info("Waiting for etcd", decisionlog.Servers, servers, decisionlog.Reason, last)
		return false, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("connecting to etcd: %w", last)
	}
	return err
}

func knock(ctx context.Context, server string, tlsConfig *tls.Config) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	network, address := "tcp", u.Host
	if u.Scheme == "unix" || u.Scheme == "unixs" {
		network, address = "unix", u.Host+u.Path
	}
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = &net.Dialer{Timeout: dialTimeout}
	if u.Scheme == "https" || u.Scheme == "unixs" {
		dialer = &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: tlsConfig}
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	return connection.Close()
}
