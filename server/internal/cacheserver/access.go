package cacheserver

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// caller is who sends a request: a shard, an administrator of the installation, or a client without access.
type caller struct {
	shard         string
	administrator bool
	name          string
}

// user returns the identity for the limits and logs of the storage. It is in no group: a reader is never exempt from a limit.
func (c caller) user() user.Info { return &user.DefaultInfo{Name: c.name} }

// access decides who may do what.
type access struct {
	// peers verifies the certificates of shards.
	peers *peers.Verifier
	// administrators authenticates other clients.
	administrators authenticator.Request
	// scrapers authenticates clients that may read the metrics.
	scrapers authenticator.Request
	// administratorsWrite lets administrators write.
	administratorsWrite bool
}

// callerOf returns who sends a request. The certificate of a shard decides even if the other authorities have signed it too.
func (a access) callerOf(r *http.Request) (caller, error) {
	var presented []*x509.Certificate
	if r.TLS != nil {
		presented = r.TLS.PeerCertificates
	}
	if len(presented) == 0 {
		return caller{}, apierrors.NewUnauthorized("the cache server requires the client certificate of a shard")
	}
	if a.peers != nil {
		if peer, err := a.peers.Identify(presented); err == nil {
			c := caller{name: peer.String()}
			if peer.Kind == peers.Shard {
				c.shard = peer.Name
			}
			return c, nil
		}
	}
	if a.administrators != nil {
		if response, ok, err := a.administrators.AuthenticateRequest(r); err == nil && ok {
			return caller{name: response.User.GetName(),
				administrator: slices.Contains(response.User.GetGroups(), user.SystemPrivilegedGroup)}, nil
		}
	}
	return caller{}, apierrors.NewUnauthorized("the client certificate is not signed by an authority of this cache server, or has expired")
}

// Scraper is the name of the user that may read the metrics.
const Scraper = "metrics-viewer"

// scrapes reports whether a client is the user that may read the metrics.
func (a access) scrapes(r *http.Request) bool {
	if a.scrapers == nil {
		return false
	}
	response, ok, err := a.scrapers.AuthenticateRequest(r)
	return err == nil && ok && response.User.GetName() == Scraper
}

// authorize returns an error if a caller may not do what a request does. It depends on the path only: nothing is read before.
func (a access) authorize(c caller, t target, writes bool) error {
	switch {
	case c.shard == "" && !c.administrator:
		return forbidden("%q may not use the cache server: only shards and administrators of the installation may", c.name)
	case !writes:
		return nil
	case !t.one():
		return forbidden("writes need the names of one shard and one logical cluster")
	case c.administrator && !a.administratorsWrite:
		return forbidden("administrators may only read: shards write their own objects, and restore them within minutes")
	case !c.administrator && c.shard != t.place.Shard:
		return forbidden("shard %q may not write the objects of shard %q", c.shard, t.place.Shard)
	}
	return nil
}

func forbidden(format string, args ...any) error {
	return status(http.StatusForbidden, metav1.StatusReasonForbidden, format, args...)
}

func notFound(format string, args ...any) error {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, format, args...)
}

func status(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}
