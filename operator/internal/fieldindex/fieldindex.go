// Package fieldindex indexes objects by what their specs refer to, so that a change of that reconciles them.
package fieldindex

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Add makes the caches of a manager keep indices of the objects of a kind, by their names.
func Add(ctx context.Context, mgr ctrl.Manager, kind client.Object, indices map[string]client.IndexerFunc) error {
	for name, values := range indices {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, name, values); err != nil {
			return err
		}
	}
	return nil
}

// Find returns requests for the objects of a namespace that an index has under a value. List is an empty one of their kind.
func Find(ctx context.Context, c client.Reader, list client.ObjectList, namespace, index, value string) []reconcile.Request {
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the objects that refer to another", "index", index, "name", value)
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(object runtime.Object) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object.(client.Object))})
		return nil
	})
	return requests
}
