package customresources

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// How often and how long a request polls for the event of an object that is already stored.
const (
	eventPoll    = 5 * time.Millisecond
	eventTimeout = 5 * time.Second
)

// live finds resources that were established or bound a moment ago: it waits for the pending event. Clients that read the
// definition or binding from any server can rely on it.
func (h *Handler) live(ctx context.Context, cluster logicalcluster.Name, key string) (Installed, error) {
	defined, bound, err := h.isStored(ctx, cluster, key)
	if err != nil || (!defined && !bound) {
		return Installed{}, err
	}
	var installed Installed
	var ok bool
	err = wait.PollUntilContextTimeout(ctx, eventPoll, eventTimeout, true, func(context.Context) (bool, error) {
		installed, ok = h.registry.get(cluster, key)
		return ok, nil
	})
	if wait.Interrupted(err) {
		return Installed{}, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable", key))
	}
	return installed, err
}

// isStored reports whether the storage has a definition or a binding of a resource in a cluster.
func (h *Handler) isStored(ctx context.Context, cluster logicalcluster.Name, key string) (defined, bound bool, err error) {
	crd, err := h.config.Live(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, false, err
	}
	if err == nil && served(crd) {
		return true, false, nil
	}
	if h.config.LiveBindings == nil {
		return false, false, nil
	}
	bindings, err := h.config.LiveBindings(ctx, cluster)
	for _, b := range bindings {
		if _, ok := usesOf(b)[use{cluster, key}]; ok {
			return false, true, nil
		}
	}
	return false, false, err
}

// arrivedBeforeBinding reports whether a request arrived before this server knew the binding, so that it may have been authorized
// without it.
func (h *Handler) arrivedBeforeBinding(ctx context.Context, installed Installed) bool {
	received, ok := request.ReceivedTimestampFrom(ctx)
	return !ok || received.Sub(h.registry.made) <= installed.boundAt
}

// authorizeAgain repeats the authorization: the first one did not know that the resource is bound, and did not apply
// the maximal permission policy of its provider.
func (h *Handler) authorizeAgain(ctx context.Context) error {
	a, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return h.authorize(ctx, a)
}
