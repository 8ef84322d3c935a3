package forward

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// Credentials are the files with which the proxy connects to a backend.
type Credentials struct {
	// CAFile has the authorities of the backend's certificate. Without it, those of the system are used.
	CAFile string
	// CertFile and KeyFile are the client certificate; empty for none.
	CertFile, KeyFile string
	// CA, Cert and Key are used in place of files without a name.
	CA, Cert, Key []byte
}

// read returns the content of the authorities, the certificate and the key.
func (c Credentials) read() (files [3][]byte, err error) {
	files = [3][]byte{c.CA, c.Cert, c.Key}
	for i, name := range []string{c.CAFile, c.CertFile, c.KeyFile} {
		if name == "" {
			continue
		}
		if files[i], err = os.ReadFile(name); err != nil {
			return files, err
		}
	}
	return files, nil
}

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 10 * time.Second
	// continueTimeout is how long a large body waits for the shard to want it. A shard may let a request wait for its turn.
	continueTimeout = 60 * time.Second
	// maxHeaderBytes is the maximum size of the header of a response.
	maxHeaderBytes = 1 << 20
	idlePerHost    = 256
	idleTimeout    = 90 * time.Second
	// A connection on which nothing arrives for pingAfter, and no answer to a ping for pingTimeout, is dead.
	pingAfter, pingTimeout = 15 * time.Second, 5 * time.Second
)

// Connections are the connections with the same credentials: HTTP/2 for requests, HTTP/1.1 for those that upgrade theirs. Hosts have
// separate ones.
type Connections struct {
	credentials Credentials
	current     atomic.Pointer[generation]
}

// generation are the connections of one version of the files.
type generation struct {
	files          [3][]byte
	plain, upgrade *http.Transport
}

// NewConnections reads the files.
func NewConnections(c Credentials) (*Connections, error) {
	connections := &Connections{credentials: c}
	_, err := connections.Reload()
	return connections, err
}

func (c *Connections) plain() *http.Transport    { return c.current.Load().plain }
func (c *Connections) upgrades() *http.Transport { return c.current.Load().upgrade }

// RoundTrip implements http.RoundTripper, for requests of the proxy itself.
func (c *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.plain().RoundTrip(r)
}

// Reload reads the files again, and reports whether they have changed. Requests in progress keep their connections. After an error, the
// connections are as before.
func (c *Connections) Reload() (changed bool, err error) {
	files, err := c.credentials.read()
	if err != nil {
		return false, err
	}
	before := c.current.Load()
	if before != nil && slices.EqualFunc(before.files[:], files[:], bytes.Equal) {
		return false, nil
	}
	config, err := c.credentials.config(files)
	if err != nil {
		return false, err
	}
	next := &generation{files: files, plain: newTransport(config), upgrade: newTransport(config)}
	next.plain.Protocols.SetHTTP2(true)
	if c.current.Store(next); before != nil {
		before.plain.CloseIdleConnections()
		before.upgrade.CloseIdleConnections()
	}
	return true, nil
}

func (c Credentials) config(files [3][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(files[0]) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(files[0]) {
			return nil, fmt.Errorf("%s: no certificate in PEM format", c.CAFile)
		}
	}
	if len(files[1])+len(files[2]) > 0 {
		certificate, err := tls.X509KeyPair(files[1], files[2])
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.CertFile, c.KeyFile, err)
		}
		// It is presented to every server, whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	return config, nil
}

func newTransport(config *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: config.Clone(), TLSHandshakeTimeout: handshakeTimeout, ExpectContinueTimeout: continueTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		DisableCompression: true, Protocols: &http.Protocols{},
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	t.Protocols.SetHTTP1(true)
	return t
}
