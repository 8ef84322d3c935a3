package cmd

import (
	"context"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
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
	log   func(message string, keysAndValues ...any)
}

// patience is shorter than the second that a kubelet waits for an answer.
const patience = 800 * time.Millisecond

// check implements healthz.Checker. It logs the error, which the response does not have, and the log of the package healthz neither.
func (r *readiness) check(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), patience)
	defer cancel()
	err := r.missing(ctx)
	if err != nil {
		r.log("Not ready", "reason", err.Error())
	}
	return err
}

// missing returns what prevents the operator from being ready.
func (r *readiness) missing(ctx context.Context) error {
	// A replica on standby runs no controllers, so this call starts the informers: all of them, before it waits for any.
	filled := make([]toolscache.InformerSynced, len(r.watched))
	for i, object := range r.watched {
		informer, err := r.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("caching %T: %w (are cert-manager and the operator's own kinds installed?)", object, err)
		}
		filled[i] = informer.HasSynced
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), filled...) {
		for i, object := range r.watched {
			if !filled[i]() {
				return fmt.Errorf("caching %T: not filled yet", object)
			}
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
