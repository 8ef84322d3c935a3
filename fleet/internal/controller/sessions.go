package controller

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/fleet/internal/identity"
)

var errReplaced = errors.New("the agent was replaced: only the one with the approved key may use the view")

// sessions are the open requests of agents. When the key of a Cluster is replaced, the requests of the former agent end.
type sessions struct {
	mu   sync.Mutex // guards open
	open map[string]map[*session]struct{}
}

// session is one request of an agent.
type session struct {
	approvedKey string
	end         context.CancelFunc
}

// begin adds a request of the agent of a cluster that was allowed for an approved key. The context that it returns ends with the request,
// or when the key is replaced.
func (s *sessions) begin(ctx context.Context, cluster, approvedKey string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	added := &session{approvedKey, cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]map[*session]struct{}{}
	}
	if s.open[cluster] == nil {
		s.open[cluster] = map[*session]struct{}{}
	}
	s.open[cluster][added] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.open[cluster], added); len(s.open[cluster]) == 0 {
			delete(s.open, cluster)
		}
	}
}

// keep ends all requests of the agent of a cluster that were allowed for another key than the approved one.
func (s *sessions) keep(cluster, approvedKey string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for open := range s.open[cluster] {
		if open.approvedKey != approvedKey {
			open.end()
		}
	}
}

// session returns the context of an authorized request, and what to call at its end. The key may have been replaced since its
// authorization.
func (v view) session(ctx context.Context) (context.Context, func(), error) {
	refused := apierrors.NewForbidden(clusters.GroupResource(), v.cluster, errReplaced)
	u, _ := request.UserFrom(ctx)
	key, err := v.approvedKey(ctx, v.cluster)
	switch {
	case err != nil:
		return ctx, nil, err
	case u == nil:
		return ctx, nil, refused
	case v.isBootstrap(u):
		return ctx, func() {}, nil
	case !identity.IsAgent(u, v.cluster, key):
		return ctx, nil, refused
	}
	ctx, end := v.sessions.begin(ctx, v.cluster, key)
	if now, err := v.approvedKey(ctx, v.cluster); err != nil || now != key { // the session was not there to be ended
		end()
		return ctx, nil, refused
	}
	return ctx, end, nil
}
