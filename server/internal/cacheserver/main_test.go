package cacheserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authenticationx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

var client *clientv3.Client

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "cacheserver-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(directory)
		server, err := etcd.Start(context.Background(), etcd.Config{Directory: filepath.Join(directory, "etcd")})
		if err != nil {
			panic(err)
		}
		defer server.Stop()
		client = server.Client()
		return m.Run()
	}())
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// server is a cache server with its own part of the etcd of this package.
type server struct {
	*httptest.Server
	handler *Handler
	peers   *peerstest.Authority
	clients *peerstest.Authority
}

// start starts a cache server, which change configures.
func start(t testing.TB, change func(*Config)) *server {
	t.Helper()
	s := &server{peers: peerstest.NewAuthority(t), clients: peerstest.NewAuthority(t)}
	backend := storage.NewBackend(client, "/"+strings.ReplaceAll(t.Name(), "/", "_"), 0)
	t.Cleanup(backend.Close)
	options, _ := s.clients.VerifyOptions()
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	config := Config{
		Backend: backend, Peers: s.peers, Clock: testclock.NewFakeClock(began), Stopping: t.Context(),
		Administrators: authenticationx509.New(options, authenticationx509.CommonNameUserConversion),
	}
	if change != nil {
		change(&config)
	}
	var err error
	if s.handler, err = New(config); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(WithCache(s.handler, http.NotFoundHandler()))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{s.peers.Certificate(t, "server")}, ClientAuth: tls.RequestClientCert}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// as returns how a client with a certificate connects; without a certificate, it is anonymous.
func (s *server) as(t testing.TB, certificates ...tls.Certificate) *rest.Config {
	t.Helper()
	config := &rest.Config{Host: s.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: s.peers.PEM}}
	if len(certificates) > 0 {
		config.TLSClientConfig = s.peers.ClientConfig(t, certificates[0])
	}
	return config
}

func (s *server) shard(t testing.TB, name string) *rest.Config {
	t.Helper()
	return s.as(t, s.peers.Peer(t, peers.Shard, name))
}

// member returns the client of a member of a group.
func (s *server) member(t testing.TB, group string) *rest.Config {
	t.Helper()
	return s.as(t, s.clients.Signed(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "someone", Organization: []string{group}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}))
}

// in returns a client for a shard and a logical cluster.
func in(t testing.TB, config *rest.Config, shard, cluster string) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host += "/services/cache/shards/" + shard + "/clusters/" + cluster
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var exports = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}

// object returns an object of exports.
func object(name string, annotations map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"unknown": "kept"}, "status": map[string]any{"identityHash": "of " + name},
	}}
	u.SetAnnotations(annotations)
	return u
}

func create(t testing.TB, c dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := c.Create(context.Background(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// send sends a request with an escaped path, and returns the code and the message of the response.
func send(t testing.TB, config *rest.Config, method, path, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(method, config.Host, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = "//" + r.URL.Host + path
	if path, query, ok := strings.Cut(path, "?"); ok {
		r.URL.Opaque, r.URL.RawQuery = "//"+r.URL.Host+path, query
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if json.Unmarshal(content, &status) == nil && status.Kind == "Status" {
		return response.StatusCode, status.Message, response.Header
	}
	return response.StatusCode, string(content), response.Header
}

func names(list *unstructured.UnstructuredList) (all []string) {
	for _, u := range list.Items {
		a := u.GetAnnotations()
		all = append(all, fmt.Sprintf("%s/%s/%s", a["kcp.io/shard"], a["kcp.io/cluster"], u.GetName()))
	}
	return all
}
