// Package workspaces runs a controller that is written for one cluster in many workspaces at once: those of all consumers of an
// APIExport, or those that wait for an initializer or a terminator. It is a thin layer on controller-runtime.
//
// The URL of a virtual workspace serves the objects of many logical clusters. Namespace and name do not identify an object there: two
// consumers may choose the same, and every LogicalCluster is named "cluster". The manager of this package has one watch and one cache for
// all of them, with cluster, namespace and name as the key. The context of a reconciler has the logical cluster of the request. The
// client of the manager reads and writes in the logical cluster of the context, with the names that objects have there.
//
//	err := workspaces.Follow(ctx, config, workspaces.Export("databases"), ctrl.Options{}, func(manager ctrl.Manager) error {
//		return builder.TypedControllerManagedBy[workspaces.Request](manager).Named("databases").
//			Watches(&Database{}, workspaces.Lift(&handler.EnqueueRequestForObject{})).
//			Complete(workspaces.Each(&reconciler{manager.GetClient()}))
//	})
//
// The event recorder of the manager has no context, and therefore no workspace: create events with the client of the manager.
package workspaces

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// ClusterAnnotation is the annotation with the logical cluster of an object. The server sets it on every object.
const ClusterAnnotation = corev1alpha1.ClusterAnnotation

// ClusterOf returns the name of the logical cluster that an object is in.
func ClusterOf(object metav1.Object) string { return object.GetAnnotations()[ClusterAnnotation] }

type contextKey struct{}

// all cannot be the name of a logical cluster.
const all = "*"

// In returns a context for work in the logical cluster with that name.
func In(ctx context.Context, cluster string) context.Context {
	return context.WithValue(ctx, contextKey{}, cluster)
}

// Everywhere returns a context in which the client of the manager lists the objects of all workspaces.
func Everywhere(ctx context.Context) context.Context { return In(ctx, all) }

// Of returns the logical cluster of a context.
func Of(ctx context.Context) (string, error) {
	cluster, _ := ctx.Value(contextKey{}).(string)
	switch cluster {
	case "":
		return "", errors.New("the context has no workspace: use the context of a reconciler that workspaces.Each wraps, or one from " +
			"workspaces.In")
	case all:
		return "", errors.New("the context is for all workspaces: it can only list objects")
	}
	return cluster, nil
}
