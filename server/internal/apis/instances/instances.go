// Package instances deletes what there is of a resource, for the controllers that end resources and logical clusters.
package instances

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// counted is how many objects are counted one by one.
const counted = 500

// Asking is for how long the API is asked to delete what goes in any case: admission and conversions may wait for hosts of tenants.
const Asking = 10 * time.Second

// Version returns the version of a definition in which objects are deleted: any that is served, and that of the storage if it is.
func Version(crd *apiextensionsv1.CustomResourceDefinition) string {
	version := ""
	for _, v := range crd.Spec.Versions {
		if v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	return version
}

// Delete deletes every object of a resource in the cluster of ctx, and returns how many wait for their finalizers.
func Delete(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	options metav1.DeleteOptions) (left int, err error) {
	return deleteAll(ctx, client, resource, func(*metav1.PartialObjectMetadata) metav1.DeleteOptions { return options }, nil)
}

// DeleteOwn is Delete for what defines the resource: a definition or a binding. served tells whether the objects that clients get are
// those of it. It is asked again when they are known, and only those objects are deleted that were found before that: others may come
// under the same names.
func DeleteOwn(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	served func() bool) (left int, err error) {
	if !served() {
		return 0, nil
	}
	only := func(item *metav1.PartialObjectMetadata) metav1.DeleteOptions {
		return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(item.UID))}
	}
	return deleteAll(ctx, client, resource, only, served)
}

func deleteAll(
	ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource,
	options func(*metav1.PartialObjectMetadata) metav1.DeleteOptions, served func() bool,
) (left int, err error) {
	objects := client.Resource(resource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return 0, err
	}
	if served != nil && !served() {
		return 0, nil
	}
	for i := range list.Items {
		item := &list.Items[i]
		if item.DeletionTimestamp != nil {
			continue
		}
		err := objects.Namespace(item.Namespace).Delete(ctx, item.Name, options(item))
		if err != nil && !apierrors.IsNotFound(err) && !(served != nil && apierrors.IsConflict(err)) {
			return 0, fmt.Errorf("deleting %s %s/%s: %w", resource.GroupResource(), item.Namespace, item.Name, err)
		}
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
