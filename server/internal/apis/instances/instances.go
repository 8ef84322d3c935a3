// Package instances deletes all objects of a resource, for the controllers that remove resources and logical
// clusters.
package instances

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// counted is the maximum number of objects that are counted one by one.
const counted = 500

// APITimeout limits the time of deletions through the API of objects that are deleted in any case: admission and conversion can wait
// for hosts of tenants.
const APITimeout = 10 * time.Second

// Version returns the version of a definition in which objects are deleted: the storage version if it is served, otherwise any
// served version.
func Version(crd *apiextensionsv1.CustomResourceDefinition) string {
	version := ""
	for _, v := range crd.Spec.Versions {
		if v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	return version
}

// parallel is how many objects are deleted at a time.
const parallel = 8

// Delete deletes every object of a resource in the cluster of ctx, and returns how many remain because of their
// finalizers.
func Delete(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	options metav1.DeleteOptions) (left int, err error) {
	objects := client.Resource(resource)
	return DeleteWith(ctx, client, resource, func(ctx context.Context, item *metav1.PartialObjectMetadata) error {
		return objects.Namespace(item.Namespace).Delete(ctx, item.Name, options)
	})
}

// DeleteWith is Delete for objects that remove deletes, or marks as deleted.
func DeleteWith(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	remove func(context.Context, *metav1.PartialObjectMetadata) error) (left int, err error) {
	return deleteAll(ctx, client, resource, remove, nil)
}

// DeleteOwn is Delete for a definition or a binding, which defines the resource. served reports whether clients get the objects of
// that definition or binding. DeleteOwn calls it again after it has listed the objects, and deletes only the objects in the list,
// because other objects can appear under the same names.
func DeleteOwn(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	served func() bool) (left int, err error) {
	if !served() {
		return 0, nil
	}
	objects := client.Resource(resource)
	only := func(ctx context.Context, item *metav1.PartialObjectMetadata) error {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(item.UID))}
		err := objects.Namespace(item.Namespace).Delete(ctx, item.Name, options)
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	return deleteAll(ctx, client, resource, only, served)
}

func deleteAll(
	ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	remove func(context.Context, *metav1.PartialObjectMetadata) error, served func() bool,
) (left int, err error) {
	objects := client.Resource(resource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return 0, err
	}
	if served != nil && !served() {
		return 0, nil
	}
	group, deleting := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range list.Items {
		item := &list.Items[i]
		if item.DeletionTimestamp != nil {
			left++
			continue
		}
		group.Go(func() error {
			if err := remove(deleting, item); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s %s/%s: %w", resource.GroupResource(), item.Namespace, item.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if left == len(list.Items) {
		return left, nil
	}
	if list, err = objects.List(ctx, metav1.ListOptions{Limit: counted}); err != nil {
		return 0, err
	}
	if served != nil && !served() {
		return 0, nil
	}
	left = len(list.Items)
	if more := list.RemainingItemCount; more != nil {
		left += int(*more)
	}
	return left, nil
}
