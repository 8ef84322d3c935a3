// Package expectation refuses requests that a front proxy sends to the wrong shard.
package expectation

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// Places knows what this shard holds.
type Places interface {
	// Check returns nil if the shard holds a logical cluster as a proxy expects it, and otherwise the marker with which it refuses.
	Check(ctx context.Context, caller peers.Identity, e tree.Expectation) (*tree.Marker, error)
}

// Config of the filter.
type Config struct {
	Places Places
	// Caller returns the peer that sends a request, from its certificate.
	Caller     func(*http.Request) (peers.Identity, error)
	Serializer runtime.NegotiatedSerializer
}

// WithMarkers refuses a request of a front proxy for a logical cluster that this shard does not hold as the proxy expects it. The response
// has the status 421 and a marker: the request was not executed. Expectations of other clients have no effect. It must run before
// authentication and audit, and reads no body.
func (c Config) WithMarkers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expected := r.Header.Values(tree.ExpectHeader)
		if len(expected) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		r.Header.Del(tree.ExpectHeader) // later handlers can forward the request
		if caller, err := c.Caller(r); err == nil && caller.Kind == peers.Proxy {
			if err := c.check(w, r, caller, expected); err != nil {
				responsewriters.ErrorNegotiated(err, c.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// check returns the error with which a request is refused.
func (c Config) check(w http.ResponseWriter, r *http.Request, caller peers.Identity, expected []string) error {
	if len(expected) != 1 {
		return apierrors.NewBadRequest(fmt.Sprintf("the request has %d headers %s, want 1", len(expected), tree.ExpectHeader))
	}
	e, err := tree.ParseExpectation(expected[0])
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	marker, err := c.Places.Check(r.Context(), caller, e)
	if err != nil || marker == nil {
		return err
	}
	w.Header().Set(tree.PlacementHeader, marker.String())
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMisdirectedRequest, Reason: "Misdirected",
		Message: fmt.Sprintf("shard %s does not hold the logical cluster %s at epoch %d; the request was not executed", marker.Shard, e.Cluster,
			e.Epoch),
	}}
}
