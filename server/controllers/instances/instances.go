// Package instances deletes what there is of a resource, for the controllers that end resources and logical clusters.
package instances

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// counted is how many objects are counted one by one.
const counted = 500

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
func Delete(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource, options metav1.DeleteOptions) (left int, err error) {
	objects := client.Resource(resource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return 0, err
	}
	for i := range list.Items {
		item := &list.Items[i]
		if item.DeletionTimestamp != nil {
			continue
		}
		if err := objects.Namespace(item.Namespace).Delete(ctx, item.Name, options); err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("deleting %s %s/%s: %w", resource.GroupResource(), item.Namespace, item.Name, err)
		}
	}
	if list, err = objects.List(ctx, metav1.ListOptions{Limit: counted}); err != nil {
		return 0, err
	}
	left = len(list.Items)
	if more := list.RemainingItemCount; more != nil {
		left += int(*more)
	}
	return left, nil
}
