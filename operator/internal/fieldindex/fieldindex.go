// Package fieldindex indexes objects by the objects that their specs refer to, to reconcile them when these change.
package fieldindex

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Add adds indices, by name, for the objects of a kind to the caches of a manager.
func Add(ctx context.Context, mgr ctrl.Manager, kind client.Object, indices map[string]client.IndexerFunc) error {
	for name, values := range indices {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, name, values); err != nil {
			return err
		}
	}
	return nil
}

// Find returns requests for the objects of a namespace with a value in an index. List is an empty list of their kind.
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
