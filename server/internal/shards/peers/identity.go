// Package peers lets the shards and the front proxies of an installation call each other with mutual TLS. The calls are a closed list: each
// has a name, a type of request and response, and the kinds of peers that may use it.
package peers

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"
)

// Kind of a peer.
type Kind string

// Kinds of peers.
const (
	Shard Kind = "shard"
	Proxy Kind = "proxy"
)

// Root is the name of the root shard.
const Root = "root"

// Identity is who a peer is. Its certificate says so, in a URI SAN such as kcp://shard/root.
type Identity struct {
	Kind Kind
	Name string
}

const scheme = "kcp"

// String returns the URI in the certificate of the peer.
func (i Identity) String() string { return scheme + "://" + string(i.Kind) + "/" + i.Name }

// validName matches the names of peers. The names of shards are also names of Shard objects, and parts of paths and keys.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,59}[a-z0-9])?$`)

// ValidName reports whether a shard or proxy can have a name: 1 to 61 lower case letters, digits and '-', not at the ends.
func ValidName(name string) bool { return validName.MatchString(name) }

// IdentityOf returns the identity in a certificate, which the caller has verified. The certificate must have exactly one URI of this
// scheme, so that a certificate never stands for two peers.
func IdentityOf(certificate *x509.Certificate) (Identity, error) {
	var found []*url.URL
	for _, uri := range certificate.URIs {
		if uri.Scheme == scheme {
			found = append(found, uri)
		}
	}
	if len(found) != 1 {
		return Identity{}, fmt.Errorf("the certificate has %d URIs %s://shard/<name> or %[2]s://proxy/<name>, want 1", len(found), scheme)
	}
	identity := Identity{Kind: Kind(found[0].Host), Name: strings.TrimPrefix(found[0].Path, "/")}
	if (identity.Kind != Shard && identity.Kind != Proxy) || !ValidName(identity.Name) || identity.String() != found[0].String() {
		return Identity{}, fmt.Errorf("the URI %q in the certificate names no shard or proxy", found[0])
	}
	return identity, nil
}

// IsPeer reports whether a certificate claims to be that of a peer.
func IsPeer(certificate *x509.Certificate) bool {
	return slices.ContainsFunc(certificate.URIs, func(uri *url.URL) bool { return uri.Scheme == scheme })
}

// Authorities returns how certificates of peers are verified now. dynamiccertificates.CAContentProvider implements it.
type Authorities interface {
	VerifyOptions() (x509.VerifyOptions, bool)
}

// ParseIdentity returns the identity in the first certificate of a PEM file, without verifying it.
func ParseIdentity(text []byte) (Identity, error) {
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return Identity{}, err
	}
	return IdentityOf(certificates[0])
}
