package logicalcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
)

// This file deletes objects in storage, several in one transaction: one request to the API for each of the default objects of a logical
// cluster, and the steps of a namespace that is being deleted, take ten times as long.

// Contents reads and deletes the objects of the cluster of a context. storage.Contents implements it.
type Contents interface {
	Read(ctx context.Context, resources []schema.GroupResource, limit int) (holder *storage.StoredObject, objects []storage.StoredObject,
		more []schema.GroupResource, err error)
	Delete(ctx context.Context, holder *storage.StoredObject, objects []storage.StoredObject) error
}

// page is how many objects of a resource are read at a time. Each can have a megabyte.
const page = 16

const (
	rbac       = "rbac.authorization.k8s.io"
	admissions = "admissionregistration.k8s.io"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// plain are the resources whose objects need nothing but their deletion. Deleting one by a request to the API only adds admission.
var plain = sets.New(
	namespaces, bindings,
	schema.GroupResource{Resource: "configmaps"},
	schema.GroupResource{Resource: "events"},
	schema.GroupResource{Resource: "limitranges"},
	schema.GroupResource{Resource: "resourcequotas"},
	schema.GroupResource{Resource: "secrets"},
	schema.GroupResource{Resource: "serviceaccounts"},
	schema.GroupResource{Group: rbac, Resource: "clusterroles"},
	schema.GroupResource{Group: rbac, Resource: "rolebindings"},
	schema.GroupResource{Group: rbac, Resource: "roles"},
	schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
	schema.GroupResource{Group: "apis.kcp.io", Resource: "apibindings"},
)

// errNotCurrent means that the LogicalCluster in the informer is not the one that is stored.
var errNotCurrent = errors.New("the logical cluster was deleted, or created again")

// deleteTogether deletes the objects of plain resources without finalizers. If nothing else is held, it deletes namespaces, the bindings
// that grant access, and lc as well, unless lc has further finalizers. It returns the resources of which objects may be left, and whether
// it deleted lc. Webhooks and policies of the cluster can refuse deletions, so everything is left if there are any.
func (r *reconciler) deleteTogether(ctx context.Context, lc *corev1alpha1.LogicalCluster, held []schema.GroupResource) (
	left []schema.GroupResource, gone bool, err error) {
	var together []schema.GroupResource
	if !isAdmitted(held) {
		together = slices.DeleteFunc(slices.Clone(held), func(r schema.GroupResource) bool { return !plain.Has(r) })
	}
	for {
		holder, objects, more, err := r.Contents.Read(ctx, together, page)
		switch {
		case err != nil:
			return nil, false, err
		case holder == nil:
			return nil, false, errNotCurrent
		case holder.Object == nil:
			return nil, false, fmt.Errorf("the stored %s is unreadable", resource.GroupResource())
		case holder.Object.GetUID() != lc.UID:
			return nil, false, errNotCurrent
		}
		left = remainders(held, objects, more)
		whole := len(left) == 0
		rounds := inRounds(slices.DeleteFunc(objects, isHeld), whole)
		if gone = whole && len(lc.Finalizers) == 1 && slices.Equal(holder.Object.GetFinalizers(), lc.Finalizers); gone {
			last := max(len(rounds)-1, 0)
			rounds = append(rounds[:last], append(slices.Concat(rounds[last:]...), *holder))
		}
		for _, round := range rounds {
			if err := r.Contents.Delete(ctx, holder, round); err != nil {
				return nil, false, err
			}
		}
		if len(more) == 0 || len(rounds) == 0 {
			return left, gone, nil
		}
		held = left
	}
}

// isAdmitted reports whether the webhooks and policies of a cluster, which are among what it holds, may have rules for deletions.
func isAdmitted(held []schema.GroupResource) bool {
	return slices.ContainsFunc(held, func(r schema.GroupResource) bool { return r.Group == admissions })
}

// remainders returns the resources of which objects are left when those objects that are not held are deleted. If there are any, namespaces
// and the bindings that grant access are left too. more are resources with other objects.
func remainders(held []schema.GroupResource, objects []storage.StoredObject, more []schema.GroupResource) []schema.GroupResource {
	deleted := sets.New[schema.GroupResource]()
	for _, o := range objects {
		deleted.Insert(o.Resource)
	}
	deleted.Delete(more...)
	for _, o := range objects {
		if isHeld(o) {
			deleted.Delete(o.Resource)
		}
	}
	if deleted.HasAll(held...) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(held), func(r schema.GroupResource) bool {
		return deleted.Has(r) && r != namespaces && r != bindings
	})
}

// isHeld reports whether an object needs more than its deletion.
func isHeld(o storage.StoredObject) bool {
	if o.Object == nil || len(o.Object.GetFinalizers()) > 0 {
		return true
	}
	namespace, ok := o.Object.(*core.Namespace)
	return ok && slices.ContainsFunc(namespace.Spec.Finalizers, func(f core.FinalizerName) bool { return f != core.FinalizerKubernetes })
}

// inRounds divides objects into rounds with at most one object of a resource, which are deleted one after the other. A namespace is deleted
// with or after the last object in it, and the bindings that grant access with or after everything else. Unless objects are the whole
// content, namespaces and these bindings stay.
func inRounds(objects []storage.StoredObject, whole bool) [][]storage.StoredObject {
	var rounds [][]storage.StoredObject
	next := map[schema.GroupResource]int{} // the first round without an object of the resource
	emptied := map[string]int{}            // the round with the last object of a namespace
	add := func(o storage.StoredObject, soonest int) {
		at := max(soonest, next[o.Resource])
		for at >= len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[at] = append(rounds[at], o)
		next[o.Resource] = at + 1
		emptied[o.Object.GetNamespace()] = max(emptied[o.Object.GetNamespace()], at)
	}
	var namespaced, last []storage.StoredObject
	for _, o := range objects {
		switch o.Resource {
		case namespaces:
			namespaced = append(namespaced, o)
		case bindings:
			last = append(last, o)
		default:
			add(o, 0)
		}
	}
	if !whole {
		return rounds
	}
	for _, o := range namespaced {
		add(o, emptied[o.Object.GetName()])
	}
	soonest := max(len(rounds)-1, 0)
	for _, o := range last {
		add(o, soonest)
	}
	return rounds
}

// isNotCurrent reports whether there is nothing to delete.
func isNotCurrent(err error) bool { return errors.Is(err, errNotCurrent) || apierrors.IsNotFound(err) }
