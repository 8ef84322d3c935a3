// Package security tests what the flags of authentication, authorization, encryption, audit and tracing promise, with servers that use
// them.
package security

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// environment is the server of the package, and the services around it.
var environment struct {
	dir          string
	server       *kcptest.Server
	ca, stranger *kcptest.Authority // one that all trust, and one that none trusts
	etcd         *clientv3.Client
	etcdURL      string
	first, other *kcptest.Issuer
	webhooks     *webhooks
	spans        *spans
	auditLog     string
	flags        []string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := surround(dir)
	defer stop()
	if err == nil {
		environment.server, err = kcptest.Start(filepath.Join(dir, "server"), environment.flags...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return environment.server.Run(m)
}

// surround starts the services around the server, and sets its flags.
func surround(dir string) (stop func(), err error) {
	e := &environment
	stops := []func(){}
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	e.dir = dir
	if err := os.Mkdir(filepath.Join(dir, "server"), 0o700); err != nil {
		return stop, err
	}
	if e.ca, err = kcptest.NewAuthority(dir, "trusted"); err != nil {
		return stop, err
	}
	if e.stranger, err = kcptest.NewAuthority(dir, "stranger"); err != nil {
		return stop, err
	}
	database, err := startEtcd(dir)
	if err != nil {
		return stop, err
	}
	stops = append(stops, database.Close)
	tlsConfig, err := e.ca.TLSConfig(dir, "etcd-reader")
	if err != nil {
		return stop, err
	}
	if e.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{e.etcdURL}, TLS: tlsConfig}); err != nil {
		return stop, err
	}
	if e.first, err = newIssuer(dir, "issuer-one"); err != nil {
		return stop, err
	}
	if e.other, err = newIssuer(dir, "issuer-two"); err != nil {
		return stop, err
	}
	stops = append(stops, e.first.Close, e.other.Close)
	if e.webhooks, err = newWebhooks(e.ca, dir); err != nil {
		return stop, err
	}
	stops = append(stops, e.webhooks.Close)
	if e.spans, err = newSpans(); err != nil {
		return stop, err
	}
	stops = append(stops, e.spans.server.Stop)
	e.flags, err = flags()
	return stop, err
}

// newIssuer starts an issuer with a certificate of the trusted CA.
func newIssuer(dir, name string) (*kcptest.Issuer, error) {
	serving, err := environment.ca.TLSConfig(dir, name)
	if err != nil {
		return nil, err
	}
	return kcptest.NewIssuer(serving)
}

func startEtcd(dir string) (*embed.Etcd, error) {
	e := &environment
	certFile, keyFile, err := e.ca.Issue(dir, "etcd")
	if err != nil {
		return nil, err
	}
	port, err := kcptest.FreePort()
	if err != nil {
		return nil, err
	}
	e.etcdURL = fmt.Sprintf("https://127.0.0.1:%d", port)
	client, err := url.Parse(e.etcdURL)
	if err != nil {
		return nil, err
	}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "peer")}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = filepath.Join(dir, "etcd"), "panic"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ClientTLSInfo = transport.TLSInfo{CertFile: certFile, KeyFile: keyFile, TrustedCAFile: e.ca.File, ClientCertAuth: true}
	database, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-database.Server.ReadyNotify():
		return database, nil
	case <-time.After(kcptest.Timeout):
		return database, fmt.Errorf("etcd is not ready")
	}
}

func flags() ([]string, error) {
	e := &environment
	etcdCert, etcdKey, err := e.ca.Issue(e.dir, "etcd-client")
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(e.ca.File)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"encryption.yaml": encryption(firstKey),
		"audit.yaml":      auditPolicy,
		"authentication.yaml": fmt.Sprintf(authenticationConfiguration,
			e.first.URL, indent(string(ca)), e.other.URL, indent(string(ca))),
		"tracing.yaml": fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", e.spans.address),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(e.dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	authorizer, err := e.webhooks.kubeconfig(e.ca, e.dir, "authorize")
	if err != nil {
		return nil, err
	}
	auditor, err := e.webhooks.kubeconfig(e.ca, e.dir, "audit")
	if err != nil {
		return nil, err
	}
	e.auditLog = filepath.Join(e.dir, "audit.log")
	in := func(name string) string { return filepath.Join(e.dir, name) }
	return []string{
		"--etcd-servers=" + e.etcdURL, "--etcd-cafile=" + e.ca.File, "--etcd-certfile=" + etcdCert, "--etcd-keyfile=" + etcdKey,
		"--encryption-provider-config=" + in("encryption.yaml"),
		"--audit-policy-file=" + in("audit.yaml"), "--audit-log-path=" + e.auditLog, "--audit-log-mode=blocking",
		"--audit-webhook-config-file=" + auditor, "--audit-webhook-mode=blocking",
		"--authorization-webhook-config-file=" + authorizer, "--authorization-webhook-version=v1",
		"--authentication-config=" + in("authentication.yaml"),
		"--tracing-config-file=" + in("tracing.yaml"),
		"--requestheader-client-ca-file=" + e.ca.File, "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}, nil
}
