package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/utils/clock"
)

// Prefix is the path of all calls.
const Prefix = "/services/peers/v1/"

const (
	// maxBody is the maximum size of a request. A LogicalCluster or a page of a migration is smaller.
	maxBody = 4 << 20
	// maxCalls is the maximum number of calls of one peer in progress, without streams. maxStreams is the maximum number of its streams.
	maxCalls, maxStreams = 256, 64
)

// Server serves the calls of peers at Prefix. Add calls before it serves.
type Server struct {
	verifier   *Verifier
	serializer runtime.NegotiatedSerializer
	calls      map[string]call

	mu      sync.Mutex
	running map[load]int
}

// load counts what a peer has in progress.
type load struct {
	caller Identity
	stream bool
}

type call struct {
	method  string
	allowed []Kind
	stream  bool
	serve   func(w http.ResponseWriter, r *http.Request, caller Identity) error
}

// NewServer returns a server for peers whose certificates authorities have signed. serializer encodes errors.
func NewServer(authorities Authorities, serializer runtime.NegotiatedSerializer) *Server {
	verifier := NewVerifier(authorities, clock.RealClock{})
	return &Server{verifier: verifier, serializer: serializer, calls: map[string]call{}, running: map[load]int{}}
}

// Handle adds a call, which peers of the allowed kinds send by POST. f decides whether this peer may do it.
func Handle[Q, A any](s *Server, name string, allowed []Kind, f func(ctx context.Context, caller Identity, in Q) (A, error)) {
	s.add(name, call{method: http.MethodPost, allowed: allowed, serve: func(w http.ResponseWriter, r *http.Request, caller Identity) error {
		in, err := decode[Q](w, r)
		if err != nil {
			return err
		}
		out, err := f(r.Context(), caller, in)
		if err != nil {
			return err
		}
		responsewriters.WriteRawJSON(http.StatusOK, out, w)
		return nil
	}})
}

// HandleStream adds a stream, which peers of the allowed kinds open by GET. f writes to it until the request ends.
func (s *Server) HandleStream(name string, allowed []Kind, f func(w http.ResponseWriter, r *http.Request, caller Identity)) {
	s.add(name, call{method: http.MethodGet, allowed: allowed, stream: true,
		serve: func(w http.ResponseWriter, r *http.Request, caller Identity) error {
			f(w, r, caller)
			return nil
		}})
}

func (s *Server) add(name string, c call) {
	if _, exists := s.calls[name]; exists {
		panic("peer call " + name + " is added twice") // by the composition of the server, not by a request
	}
	s.calls[name] = c
}

func decode[Q any](w http.ResponseWriter, r *http.Request) (in Q, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return in, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxBody))
	}
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		return in, apierrors.NewBadRequest("reading the body: " + err.Error())
	}
	return in, nil
}

// WithCalls serves the calls of peers, and passes other requests to next. It must be called before authentication: a peer is not a user.
func (s *Server) WithCalls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, strings.TrimSuffix(Prefix, "v1/")) {
			next.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	})
}

// ServeHTTP serves one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		responsewriters.ErrorNegotiated(err, s.serializer, schema.GroupVersion{Version: "v1"}, w, r)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	caller, err := s.Caller(r)
	if err != nil {
		return apierrors.NewUnauthorized("only shards and front proxies of this installation can make this call: " + err.Error())
	}
	name, _ := strings.CutPrefix(r.URL.Path, Prefix)
	c, ok := s.calls[name]
	switch {
	case !ok:
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound,
			Reason: metav1.StatusReasonNotFound, Message: "this shard has no call with this name; its version may be older than yours"}}
	case r.Method != c.method:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "peer call " + name}, r.Method)
	case !slices.Contains(c.allowed, caller.Kind):
		return apierrors.NewForbidden(schema.GroupResource{Resource: "peer call"}, name, fmt.Errorf("%s may not make it", caller))
	}
	key := load{caller: caller, stream: c.stream}
	if !s.begin(key) {
		return apierrors.NewTooManyRequests("too many calls of "+caller.String()+" are in progress", 1)
	}
	defer s.end(key)
	return c.serve(w, r, caller)
}

// Caller returns the peer that sends a request, or why it is none.
func (s *Server) Caller(r *http.Request) (Identity, error) {
	if r.TLS == nil {
		return Identity{}, errors.New("the connection is not encrypted")
	}
	return s.verifier.Identify(r.TLS.PeerCertificates)
}

func (s *Server) begin(key load) bool {
	limit := maxCalls
	if key.stream {
		limit = maxStreams
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key] >= limit {
		return false
	}
	s.running[key]++
	return true
}

func (s *Server) end(key load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key]--; s.running[key] == 0 {
		delete(s.running, key)
	}
}
