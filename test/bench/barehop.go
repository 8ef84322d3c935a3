package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
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

// hop configures a process that only forwards to one server: without authentication, index, limits and metrics. It shows what a front proxy
// costs at least: the second TLS connection, and another program on the same processors.
type hop struct {
	// URL is that of the server, and Authority the file with the authority of its certificate.
	URL, Authority string
	// Cert and Key are the files of the certificate with which the hop serves.
	Cert, Key string
	// Copies lets the hop copy the bytes of connections, without reading them. Otherwise, it is a reverse proxy for requests.
	Copies bool
}

// serveHop is the process of a hop. It prints its address, and serves until ctx ends.
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	fmt.Println(listener.Addr())
	serve := h.forwardRequests
	if h.Copies {
		serve = h.copyConnections
	}
	if err := serve(listener, target, &tls.Config{RootCAs: roots}); ctx.Err() == nil {
		return err
	}
	return nil
}

// forwardRequests serves as a reverse proxy until listener is closed.
func (h hop) forwardRequests(listener net.Listener, target *url.URL, config *tls.Config) error {
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	return server.ServeTLS(listener, h.Cert, h.Key)
}

// copyConnections opens a TLS connection for each accepted one, and copies the bytes of both, until listener is closed.
func (h hop) copyConnections(listener net.Listener, target *url.URL, config *tls.Config) error {
	certificate, err := tls.LoadX509KeyPair(h.Cert, h.Key)
	if err != nil {
		return err
	}
	serving := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	for {
		accepted, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := copyConnection(tls.Server(accepted, serving), target.Host, config.Clone()); err != nil {
				fmt.Fprintln(os.Stderr, "copying a connection:", err)
			}
		}()
	}
}

// copyConnection copies until one side closes its connection.
func copyConnection(client *tls.Conn, address string, config *tls.Config) error {
	defer client.Close()
	if err := client.Handshake(); err != nil {
		return err
	}
	if protocol := client.ConnectionState().NegotiatedProtocol; protocol != "" {
		config.NextProtos = []string{protocol}
	}
	server, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	return nil
}

// startHops starts a reverse proxy, and a process that only copies bytes, in front of the shard of the organization, for the clients of
// direct.
func (r *shardedRun) startHops() error {
	serving, err := r.installation.PKI.Serve("hop")
	if err != nil {
		return err
	}
	h := hop{URL: r.direct.config.Host, Authority: r.installation.PKI.Serving.File, Cert: serving.Cert, Key: serving.Key}
	r.bare, err = r.startHop("bare-proxy", h)
	if err == nil {
		h.Copies = true
		r.copies, err = r.startHop("tls-copy", h)
	}
	return err
}

// startHop starts the process of a hop, and returns it for the clients of direct.
func (r *shardedRun) startHop(name string, h hop) (*process, error) {
	told, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, "-hop="+string(told))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	r.hops = append(r.hops, command)
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, others: r.direct.others, hops: []int{command.Process.Pid},
		config: rest.CopyConfig(r.direct.config), cluster: r.direct.cluster}
	p.config.Host = "https://" + address[:len(address)-1]
	return p, p.connect()
}

// stopHops stops what startHops has started.
func (r *shardedRun) stopHops() {
	for _, command := range r.hops {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}
