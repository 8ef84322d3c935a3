package sharded

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Kinds of peers, which are the first part of the URI in a certificate of a peer.
const (
	KindShard = "shard"
	KindProxy = "proxy"
)

// PKI are the certificate authorities of an installation. Each certifies one kind of identity, and no process has a key of any.
type PKI struct {
	// Serving signs the serving certificates of all processes.
	Serving *kcptest.Authority
	// Clients signs the certificates of administrators.
	Clients *kcptest.Authority
	// Peers signs the certificates of shards, and Proxies those of front proxies. A proxy proves with the same certificate that it is a peer
	// and that it may state the identity of a user.
	Peers, Proxies *kcptest.Authority
	// PeersFile contains the certificates of Peers and Proxies.
	PeersFile string

	directory string
}

// NewPKI creates the authorities, and writes their certificates to a directory.
func NewPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &PKI{directory: dir, PeersFile: filepath.Join(dir, "all-peers.crt")}
	for name, authority := range map[string]**kcptest.Authority{
		"serving": &p.Serving, "clients": &p.Clients, "peers": &p.Peers, "proxies": &p.Proxies,
	} {
		var err error
		if *authority, err = kcptest.NewAuthority(dir, name); err != nil {
			return nil, fmt.Errorf("creating the authority %s: %w", name, err)
		}
	}
	return p, concatenate(p.PeersFile, p.Peers.File, p.Proxies.File)
}

// Certificate is the paths of a certificate and its private key.
type Certificate struct{ Cert, Key string }

// Serve issues the serving certificate of a process.
func (p *PKI) Serve(name string) (Certificate, error) {
	return issued(p.Serving.Issue(p.directory, name+"-serving"))
}

// Peer issues the certificate with which a shard or a proxy calls others.
func (p *PKI) Peer(kind, name string) (Certificate, error) {
	authority := p.Peers
	if kind == KindProxy {
		authority = p.Proxies
	}
	subject := kcptest.Subject{CommonName: name, URI: &url.URL{Scheme: "kcp", Host: kind, Path: "/" + name}}
	return issued(authority.IssueTo(p.directory, name+"-"+kind, subject))
}

// Client issues the certificate of a user.
func (p *PKI) Client(user kcptest.User) (Certificate, error) {
	return issued(p.Clients.IssueTo(p.directory, user.Name, kcptest.Subject{CommonName: user.Name, Organizations: user.Groups}))
}

func issued(cert, key string, err error) (Certificate, error) { return Certificate{cert, key}, err }

// concatenate writes the content of files to another file.
func concatenate(to string, files ...string) error {
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all = append(all, content...)
	}
	return os.WriteFile(to, all, 0o600)
}
