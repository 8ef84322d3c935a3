package apibinding

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
)

// claimChanges are the claims whose acceptance has changed since their objects were labeled. In between, admission labels by each state,
// also by a state that ends before a reconciliation.
type claimChanges struct {
	mu      sync.Mutex
	changes map[informers.Key]sets.Set[claims.Key] // by binding
}

func newClaimChanges() *claimChanges {
	return &claimChanges{changes: map[informers.Key]sets.Set[claims.Key]{}}
}

// changed is an informers.Handler.
func (c *claimChanges) changed(old, obj runtime.Object) {
	before, now := acceptedBy(old), acceptedBy(obj)
	for _, pair := range [][2]map[claims.Key]apisv1alpha2.ScopedPermissionClaim{{before, now}, {now, before}} {
		for claim, selected := range pair[0] {
			other, ok := pair[1][claim]
			if ok && equality.Semantic.DeepEqual(selected.Selector, other.Selector) && claims.Listed(selected.Verbs) == claims.Listed(other.Verbs) {
				continue
			}
			for _, b := range []runtime.Object{old, obj} {
				if key, err := informers.KeyOf(b); b != nil && err == nil {
					c.add(key, claim)
				}
			}
		}
	}
	if obj == nil { // claims were applied before the finalizer was removed
		if key, err := informers.KeyOf(old); err == nil {
			c.take(key)
		}
	}
}

// acceptedBy returns the claims of which a binding labels the objects.
func acceptedBy(obj runtime.Object) map[claims.Key]apisv1alpha2.ScopedPermissionClaim {
	b, ok := obj.(*apisv1alpha2.APIBinding)
	if !ok || b == nil || b.DeletionTimestamp != nil {
		return nil
	}
	accepted := map[claims.Key]apisv1alpha2.ScopedPermissionClaim{}
	for _, claim := range claims.Accepted(b) {
		accepted[claims.KeyOf(&claim.PermissionClaim)] = claim
	}
	return accepted
}

func (c *claimChanges) add(binding informers.Key, claim claims.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes[binding] == nil {
		c.changes[binding] = sets.New[claims.Key]()
	}
	c.changes[binding].Insert(claim)
}

// take removes the changes of a binding, and returns them.
func (c *claimChanges) take(binding informers.Key) sets.Set[claims.Key] {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.changes[binding]
	delete(c.changes, binding)
	return taken
}
