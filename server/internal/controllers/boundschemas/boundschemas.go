// Package boundschemas deletes the schemas that are kept for APIBindings, with their rules of conversion, once nobody has bound them
// for a while.
package boundschemas

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// grace is for how long a schema is kept that nobody uses, and settling how long it takes at the most until the binding tells that it
// was made for.
const (
	grace    = 30 * time.Minute
	settling = time.Minute
)

// Inputs of the controller. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set *informers.Set
	// Schemas and Conversions store APIResourceSchemas and APIConversions.
	Schemas, Conversions storage.Objects
	Clock                clock.PassiveClock
}

type reconciler struct {
	Inputs
	controller *runner.Controller

	mu   sync.Mutex
	uses map[string]int // by the name of what is kept, which is the UID of a schema
}

// New returns the controller. Its keys are APIResourceSchemas in the cluster system:bound-crds. Since when one is not used is written
// into it, so that neither another process nor a binding that comes in the last moment is mistaken.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, uses: map[string]int{}}
	r.controller = runner.New("boundschemas", 1, r.reconcile)
	in.Set.APIBindings.AddHandler(r.count)
	for _, kept := range []*informers.Informer{in.Set.APIResourceSchemas.Informer, in.Set.APIConversions.Informer} {
		r.controller.WatchMapped(kept, func(obj runtime.Object) []informers.Key {
			if key, err := informers.KeyOf(obj); err == nil && key.Cluster == logicalcluster.SystemBoundCRDs {
				return []informers.Key{key}
			}
			return nil
		})
	}
	return r.controller
}

// count is an informers.Handler: it counts the bindings that use each schema, and looks after those with the first or last one.
func (r *reconciler) count(old, obj runtime.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := map[string]int{}
	for _, uid := range schemasOf(old) {
		changed[uid]--
	}
	for _, uid := range schemasOf(obj) {
		changed[uid]++
	}
	for uid, n := range changed {
		before := r.uses[uid]
		now := before + n
		if now == 0 {
			delete(r.uses, uid)
		} else {
			r.uses[uid] = now
		}
		if (before == 0) != (now == 0) {
			r.controller.Enqueue(informers.Key{Cluster: logicalcluster.SystemBoundCRDs, Name: uid})
		}
	}
}

// schemasOf returns the UIDs of the schemas that a binding uses.
func schemasOf(obj runtime.Object) []string {
	b, ok := obj.(*apisv1alpha2.APIBinding)
	if !ok || b == nil {
		return nil
	}
	var uids []string
	for i := range b.Status.BoundResources {
		uids = append(uids, b.Status.BoundResources[i].Schema.UID)
	}
	return uids
}

func (r *reconciler) used(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uses[uid] > 0
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	kept, err := r.Set.APIResourceSchemas.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return r.deleteConversion(ctx, key)
	}
	if err != nil {
		return err
	}
	mark := kept.Annotations[apisv1alpha2.UnusedSinceAnnotation]
	switch do, after := decide(mark, r.used(key.Name), r.Clock.Since(kept.CreationTimestamp.Time), r.Clock.Now()); do {
	case wait:
		r.controller.EnqueueAfter(key, after)
		return nil
	case markUnused:
		r.controller.EnqueueAfter(key, after)
		return r.mark(ctx, key, r.Clock.Now().UTC().Format(time.RFC3339))
	case markUsed:
		return r.mark(ctx, key, "")
	case remove:
		err = runner.IgnoreNotFound(r.Schemas.Delete(ctx, key.Name, &apisv1alpha1.APIResourceSchema{}, func(obj runtime.Object) error {
			if live := obj.(*apisv1alpha1.APIResourceSchema); live.Annotations[apisv1alpha2.UnusedSinceAnnotation] != mark || r.used(key.Name) {
				return apierrors.NewConflict(apisv1alpha1.Resource("apiresourceschemas"), key.Name, fmt.Errorf("it is used again"))
			}
			return nil
		}))
	}
	return err
}

// What is done with a schema.
const (
	nothing = iota
	wait
	markUnused
	markUsed
	remove
)

// decide returns what to do with a schema of some age that is marked as not used since a time, or not, and when to look again.
func decide(mark string, used bool, age time.Duration, now time.Time) (do int, after time.Duration) {
	switch {
	case used && mark == "":
		return nothing, 0
	case used:
		return markUsed, 0
	case mark == "" && age < settling:
		return wait, settling - age
	}
	since, err := time.Parse(time.RFC3339, mark)
	if err != nil || since.After(now) { // never marked, or by nobody who knows the time
		return markUnused, grace
	}
	if left := grace - now.Sub(since); left > 0 {
		return wait, left
	}
	return remove, 0
}

// mark notes since when a schema is not used; empty if it is.
func (r *reconciler) mark(ctx context.Context, key informers.Key, since string) error {
	return runner.IgnoreNotFound(r.Schemas.Update(ctx, key.Name, &apisv1alpha1.APIResourceSchema{}, func(obj runtime.Object) error {
		live := obj.(*apisv1alpha1.APIResourceSchema)
		if since == "" {
			delete(live.Annotations, apisv1alpha2.UnusedSinceAnnotation)
			return nil
		}
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, apisv1alpha2.UnusedSinceAnnotation, since)
		return nil
	}))
}

// deleteConversion deletes the rules of a schema that is gone. Those of a schema that is about to come are younger.
func (r *reconciler) deleteConversion(ctx context.Context, key informers.Key) error {
	rules, err := r.Set.APIConversions.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if left := grace - r.Clock.Since(rules.CreationTimestamp.Time); left > 0 {
		r.controller.EnqueueAfter(key, left)
		return nil
	}
	return runner.IgnoreNotFound(r.Conversions.Delete(ctx, key.Name, &apisv1alpha1.APIConversion{}, func(runtime.Object) error { return nil }))
}
