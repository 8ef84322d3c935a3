// Package workspaces lets a controller that is written for one cluster serve very many workspaces at once: those of all tenants
// who have bound an APIExport, or those that wait for an initializer or a terminator. It is a thin layer on controller-runtime.
//
// Behind the URL of a virtual workspace there are the objects of many logical clusters, in which namespace and name say nothing by
// themselves: two tenants may choose the same, and every LogicalCluster is called "cluster". The manager of this package has one watch
// and one cache for all of them, which know objects by cluster, namespace and name. In which cluster a reconciler works is said by
// its context, and so the client of the manager reads and writes there, with the names that objects have there.
//
//	err := workspaces.Follow(ctx, config, workspaces.Export("databases"), ctrl.Options{}, func(manager ctrl.Manager) error {
//		return builder.TypedControllerManagedBy[workspaces.Request](manager).Named("databases").
//			Watches(&Database{}, workspaces.Lift(&handler.EnqueueRequestForObject{})).
//			Complete(workspaces.Each(&reconciler{manager.GetClient()}))
//	})
//
// The recorder of events of the manager has no context, and with that no workspace: create events with its client.
package workspaces

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// ClusterAnnotation tells the logical cluster of every object. The server sets it.
const ClusterAnnotation = corev1alpha1.ClusterAnnotation

// ClusterOf returns the name of the logical cluster that an object is in.
func ClusterOf(object metav1.Object) string { return object.GetAnnotations()[ClusterAnnotation] }

type contextKey struct{}

// all is no name of a logical cluster.
const all = "*"

// In returns a context for the work in one logical cluster, which has that name.
func In(ctx context.Context, cluster string) context.Context {
	return context.WithValue(ctx, contextKey{}, cluster)
}

// Everywhere returns a context in which the client of the manager lists what all workspaces have.
func Everywhere(ctx context.Context) context.Context { return In(ctx, all) }

// Of returns the logical cluster that a context is for.
func Of(ctx context.Context) (string, error) {
	cluster, _ := ctx.Value(contextKey{}).(string)
	switch cluster {
	case "":
		return "", errors.New("the context tells no workspace: it has to come from a reconciler behind workspaces.Each, or from workspaces.In")
	case all:
		return "", errors.New("the context is for all workspaces, in which objects can only be listed")
	}
	return cluster, nil
}
