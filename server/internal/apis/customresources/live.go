package customresources

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// How often and how long a request looks for the event of what is stored already.
const (
	eventPoll    = 5 * time.Millisecond
	eventTimeout = 5 * time.Second
)

// live finds what was established or bound a moment ago: it waits for the event, which is on its way. Clients that have seen
// it in storage, on whichever server, may rely on it.
func (h *Handler) live(ctx context.Context, cluster logicalcluster.Name, key string) (Installed, error) {
	defined, bound, err := h.coming(ctx, cluster, key)
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

// coming tells whether a resource is stored as one that a cluster defines, or has bound.
func (h *Handler) coming(ctx context.Context, cluster logicalcluster.Name, key string) (defined, bound bool, err error) {
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

// cameBefore tells whether a request has come before what is bound was known here, so that it may have been authorized without.
func (h *Handler) cameBefore(ctx context.Context, installed Installed) bool {
	received, ok := request.ReceivedTimestampFrom(ctx)
	return !ok || received.Sub(h.registry.made) <= installed.boundAt
}

// authorizeAgain asks for permission once more: when that was asked, nobody knew yet that the resource is bound, and so
// not what its provider allows at the most.
func (h *Handler) authorizeAgain(ctx context.Context) error {
	a, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	decision, reason, err := h.config.Authorizer.Authorize(ctx, a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(),
			fmt.Errorf("%s", reason))
	}
	return nil
}
