package cmd

import (
	"context"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readiness checks whether the operator leads or is on standby for the leader.
type readiness struct {
	cache   cache.Informers
	watched []client.Object
	// elected is closed when this process becomes the leader.
	elected <-chan struct{}
	// lease is the Lease of the leader, and live reads it.
	lease client.ObjectKey
	live  client.Reader
	now   func() time.Time
}

// patience is shorter than the second that a kubelet waits for an answer.
const patience = 800 * time.Millisecond

// check implements healthz.Checker.
func (r *readiness) check(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), patience)
	defer cancel()
	for _, object := range r.watched {
		informer, err := r.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("caching %T: %w (are cert-manager and the operator's own kinds installed?)", object, err)
		}
		if !informer.HasSynced() {
			return fmt.Errorf("caching %T: not filled yet", object)
		}
	}
	select {
	case <-r.elected:
		return nil
	default:
	}
	lease := &coordinationv1.Lease{}
	if err := r.live.Get(ctx, r.lease, lease); err != nil {
		return fmt.Errorf("reading the leader election Lease: %w", err)
	}
	if holder(lease, r.now()) == "" {
		return fmt.Errorf("no operator holds Lease %s", r.lease)
	}
	return nil
}

// holder returns the holder of a Lease, or an empty string if it has expired.
func holder(lease *coordinationv1.Lease, now time.Time) string {
	spec := lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil ||
		now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second)) {
		return ""
	}
	return *spec.HolderIdentity
}
