// Package freshness refuses requests until the informers are filled, and while they may be behind etcd by more than a limit. Otherwise the
// server would respond with 404 or 403 for existing objects, and would apply permissions that were revoked through another server.
package freshness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/health"
)

// retryAfter is the delay, in seconds, after which a refused client may retry.
const retryAfter = 1

// Informer mirrors stored objects.
type Informer interface {
	// Version returns the resource version up to which the informer is complete.
	Version() uint64
}

const (
	// parts is the number of comparisons with the storage during the limit.
	parts = 10
	// poll is the interval of checks whether the informers have caught up.
	poll = 10 * time.Millisecond
)

// State describes how current the informers are.
type State struct {
	// Limit is the maximum time that the informers may be behind. Zero means no limit.
	Limit time.Duration

	filled atomic.Bool
	lost   atomic.Pointer[error]

	mu sync.Mutex
	at time.Time // the informers are complete up to this time
}

// Filled records that the informers are filled.
func (s *State) Filled() {
	s.advance(time.Now())
	s.filled.Store(true)
}

// Lose makes the state stale permanently, with a reason.
func (s *State) Lose(err error) { s.lost.Store(&err) }

func (s *State) advance(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.at) {
		s.at = at
	}
}

// Age returns the maximum time that the informers are behind.
func (s *State) Age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.at)
}

// Stale returns an error if requests must not be decided with the content of the informers.
func (s *State) Stale() error {
	if lost := s.lost.Load(); lost != nil {
		return *lost
	}
	if !s.filled.Load() {
		return errors.New("the server is starting and has not read all stored objects yet")
	}
	if s.Limit == 0 {
		return nil
	}
	if age := s.Age(); age > s.Limit {
		return fmt.Errorf("the server has not caught up with etcd for %s, and permissions may have been revoked since", age.Round(time.Second))
	}
	return nil
}

// Run compares all informers with source until ctx ends. It must not be called if Limit is zero.
func (s *State) Run(ctx context.Context, source informers.Revisions, all []Informer) {
	tick := time.NewTicker(s.Limit / parts)
	defer tick.Stop()
	stale := false
	for {
		if began := time.Now(); s.compare(ctx, source, all) {
			s.advance(began)
		}
		if now := s.Age() > s.Limit; now != stale {
			if stale = now; stale {
				klog.FromContext(ctx).Info("etcd cannot be reached or watches are behind, refusing requests", decisionlog.Age, s.Age(),
					decisionlog.Limit, s.Limit)
			} else {
				klog.FromContext(ctx).Info("The informers have caught up with etcd, serving requests again")
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// compare waits until the informers have everything that was stored when it was called, and reports whether it succeeded.
func (s *State) compare(ctx context.Context, source informers.Revisions, all []Informer) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	reading, done := context.WithTimeout(ctx, s.Limit/parts*2)
	revision, err := source.Revision(reading)
	done()
	if err != nil {
		return false
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var asked time.Time
	var requests informers.ProgressRequests
	for {
		if have(all, revision) {
			return true
		}
		if time.Since(asked) > s.Limit/parts {
			if asked = time.Now(); requests.Send(ctx, source) != nil {
				return false
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

func have(all []Informer, revision uint64) bool {
	for _, i := range all {
		if i.Version() < revision {
			return false
		}
	}
	return true
}

// operators are paths of the server itself that are served while the state is stale: then authorization allows only users who need no
// stored permission.
var operators = []string{"/metrics", "/debug"}

// WithRefusal refuses all requests except health checks while the state is stale, with errors that serializer encodes. own recognises the
// requests of the server itself, which fill the informers.
func (s *State) WithRefusal(next http.Handler, own func(*http.Request) bool, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cause := s.Stale()
		if cause == nil || health.Below(r.URL.Path, health.Paths) || (s.filled.Load() && health.Below(r.URL.Path, operators)) || own(r) {
			next.ServeHTTP(w, r)
			return
		}
		responsewriters.ErrorNegotiated(unavailable(cause), serializer, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

func unavailable(cause error) error {
	err := apierrors.NewServiceUnavailable(cause.Error() + ": try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return err
}
