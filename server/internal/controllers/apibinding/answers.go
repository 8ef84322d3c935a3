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

// answers are the claims whose acceptance has changed since their objects were labelled: admission has labelled by each answer
// that there was in between, also by those that were taken back before anybody reconciled them.
type answers struct {
	mu      sync.Mutex
	changes map[informers.Key]sets.Set[claims.Key] // by binding
}

func newAnswers() *answers { return &answers{changes: map[informers.Key]sets.Set[claims.Key]{}} }

// changed is an informers.Handler.
func (a *answers) changed(old, obj runtime.Object) {
	before, now := acceptedBy(old), acceptedBy(obj)
	for _, pair := range [][2]map[claims.Key]apisv1alpha2.ScopedPermissionClaim{{before, now}, {now, before}} {
		for claim, selected := range pair[0] {
			other, ok := pair[1][claim]
			if ok && equality.Semantic.DeepEqual(selected.Selector, other.Selector) && claims.Listed(selected.Verbs) == claims.Listed(other.Verbs) {
				continue
			}
			for _, b := range []runtime.Object{old, obj} {
				if key, err := informers.KeyOf(b); b != nil && err == nil {
					a.add(key, claim)
				}
			}
		}
	}
	if obj == nil { // what was left to do was done before the finalizer was removed
		if key, err := informers.KeyOf(old); err == nil {
			a.take(key)
		}
	}
}

// acceptedBy returns the claims that a binding labels by.
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

func (a *answers) add(binding informers.Key, claim claims.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes[binding] == nil {
		a.changes[binding] = sets.New[claims.Key]()
	}
	a.changes[binding].Insert(claim)
}

// take returns the changes of a binding, and forgets them.
func (a *answers) take(binding informers.Key) sets.Set[claims.Key] {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.changes[binding]
	delete(a.changes, binding)
	return taken
}
