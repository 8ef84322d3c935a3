// Package boundschemas deletes the copies of schemas and conversion rules for APIBindings after no binding has used them for a while.
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

// grace is how long an unused copy is kept. settling is the maximum time until the status of a binding has the schema that was copied for
// it.
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
	uses map[string]int // by the name of the copy, which is the UID of the schema
}

// New returns the controller. Its keys are APIResourceSchemas in the cluster system:bound-crds. The time since when a schema is unused is
// an annotation of it: another process continues from there, and a binding that uses the schema at the last moment removes it.
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

// count is an informers.Handler. It counts the bindings that use each schema, and enqueues a schema with its first and its last use.
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
				return apierrors.NewConflict(apisv1alpha1.Resource("apiresourceschemas"), key.Name, fmt.Errorf("a binding uses the schema again"))
			}
			return nil
		}))
	}
	return err
}

// These are the decisions for a copy of a schema.
const (
	nothing = iota
	wait
	markUnused
	markUsed
	remove
)

// decide returns what to do with a schema of an age, which may be marked as unused since a time, and when to check again.
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
	if err != nil || since.After(now) { // no mark, or an invalid one
		return markUnused, grace
	}
	if left := grace - now.Sub(since); left > 0 {
		return wait, left
	}
	return remove, 0
}

// mark writes since when a schema is unused. An empty string removes the mark.
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

// deleteConversion deletes the rules of a schema that does not exist. Rules within the grace period may belong to a schema that is not
// created yet.
func (r *reconciler) deleteConversion(ctx context.Context, key informers.Key) error {
	rules, err := r.Set.APIConversions.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if left := grace - r.Clock.Since(rules.CreationTimestamp.Time); left > 0 {
		r.controller.EnqueueAfter(key, left)
		return nil
	}
	return runner.IgnoreNotFound(r.Conversions.Delete(ctx, key.Name, &apisv1alpha1.APIConversion{}, func(obj runtime.Object) error {
		return runner.Same(obj.(*apisv1alpha1.APIConversion), rules)
	}))
}
