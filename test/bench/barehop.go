package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// hop configures a reverse proxy that only forwards requests to one server: without authentication, index, limits and metrics. It shows
// what a front proxy costs at least: the second TLS connection, and another program on the same processors.
type hop struct {
	// URL is that of the server, and Authority the file with the authority of its certificate.
	URL, Authority string
	// Cert and Key are the files of the certificate with which the reverse proxy serves.
	Cert, Key string
}

// serveHop is the process of the reverse proxy. It prints its address, and serves until ctx ends.
func serveHop(ctx context.Context, told string) error {
	var h hop
	if err := json.Unmarshal([]byte(told), &h); err != nil {
		return err
	}
	target, err := url.Parse(h.URL)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(h.Authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DisableCompression: true},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println(listener.Addr())
	if err := server.ServeTLS(listener, h.Cert, h.Key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// startBare starts a reverse proxy in front of the shard of the organization, for the clients of direct.
func (r *shardedRun) startBare() error {
	serving, err := r.installation.PKI.Serve("bare")
	if err != nil {
		return err
	}
	told, err := json.Marshal(hop{URL: r.direct.config.Host, Authority: r.installation.PKI.Serving.File, Cert: serving.Cert, Key: serving.Key})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self, "-hop="+string(told))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	r.bare = &process{name: "bare-proxy", others: r.direct.others, hops: []int{command.Process.Pid},
		config: rest.CopyConfig(r.direct.config), cluster: r.direct.cluster}
	r.stopBare = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		r.stopBare()
		return fmt.Errorf("starting a bare reverse proxy: %w", err)
	}
	r.bare.config.Host = "https://" + address[:len(address)-1]
	return r.bare.connect()
}
