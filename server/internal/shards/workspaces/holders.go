package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// knownSteps is how many records of other shards are remembered, knownFor how long they are used without another call.
	knownSteps = 10_000
	knownFor   = time.Minute
)

// holders finds the shards that hold logical clusters which this shard knows by name only. Other shards offer only the clusters whose
// objects others may read, so the records of the rest are read from root downward: each shard on the way says which shard holds the next
// cluster. No shard is believed about a cluster that it does not hold.
type holders struct {
	// known returns the holder of a cluster according to what shards offer.
	known func(cluster logicalcluster.Name) (shard string, epoch uint64, known bool)
	// read returns the shard in the record of a Workspace, from the shard that holds its cluster.
	read  func(ctx context.Context, shard string, of question) (string, error)
	clock clock.PassiveClock
	steps *lru.Cache // of remembered, by step
}

// remembered is the shard that holds the end of a step.
type remembered struct {
	shard string
	at    time.Time
}

// holder returns the shard that holds a cluster. current ignores what is remembered.
func (h *holders) holder(ctx context.Context, parent Parent, current bool) (string, error) {
	if shard, _, ok := h.known(parent.Cluster); ok {
		return shard, nil
	}
	outermost, way, err := parent.steps()
	if err != nil {
		return "", apierrors.NewBadRequest(err.Error())
	}
	if scheduling.IsNewName(outermost) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the ancestors of logical cluster %q do not begin at root or at a home", parent.Cluster))
	}
	shard := peers.Root // which holds root and all homes
	for _, s := range way {
		if shard, err = h.follow(ctx, shard, s, current); err != nil {
			return "", err
		}
	}
	return shard, nil
}

// follow returns the shard that holds the end of a step, whose beginning is on a shard. While that shard does not respond, what it said
// last counts.
func (h *holders) follow(ctx context.Context, from string, s step, current bool) (string, error) {
	last, known := h.steps.Get(s)
	if known && !current && h.clock.Since(last.(remembered).at) < knownFor {
		return last.(remembered).shard, nil
	}
	shard, err := h.read(ctx, from, question{Parent: s.from, Name: s.name, Cluster: s.to})
	switch {
	case err == nil:
		h.steps.Add(s, remembered{shard: shard, at: h.clock.Now()})
		return shard, nil
	case known && peers.IsUnreachable(err):
		return last.(remembered).shard, nil
	}
	return "", fmt.Errorf("finding the shard of logical cluster %s: %w", s.to, err)
}

// verify returns an error if a peer does not hold the parent.
func (h *holders) verify(ctx context.Context, caller peers.Identity, parent Parent) error {
	for _, current := range []bool{false, true} { // it may have moved since
		shard, err := h.holder(ctx, parent, current)
		if err == nil && shard == caller.Name {
			return nil
		}
		if err != nil && current {
			return unverified(parent, err)
		}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("%s does not hold logical cluster %q", caller, parent.Cluster),
	}}
}

// unverified returns the error for a caller if the holder of a parent cannot be found.
func unverified(parent Parent, err error) error {
	if apierrors.IsBadRequest(err) {
		return err
	}
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("finding the shard that holds logical cluster %q: %v", parent.Cluster, err))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// verifyOwner returns an error if a peer does not hold the Workspace of a LogicalCluster. For the shard that was last seen to hold it, no
// record is read: the shard can delete its clusters while others do not respond.
func (h *holders) verifyOwner(ctx context.Context, caller peers.Identity, lc *corev1alpha1.LogicalCluster) error {
	if ownerShard(lc) == caller.Name {
		return nil
	}
	return h.verify(ctx, caller, parentOf(lc))
}
