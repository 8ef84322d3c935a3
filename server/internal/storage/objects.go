package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Objects stores the objects of one cluster-scoped resource for the server itself, in the cluster of each context. Typed stores them
// in etcd; tests keep them in memory.
type Objects interface {
	// Create stores obj. It fails with AlreadyExists if an object of that name exists.
	Create(ctx context.Context, name string, obj runtime.Object) error
	// CreateAsRead is Create for an object that equals what reading it returns; see Typed.
	CreateAsRead(ctx context.Context, name string, obj runtime.Object) error
	// Get reads an object into out, or fails with NotFound.
	Get(ctx context.Context, name string, out runtime.Object) error
	// Update stores the result of change for an object, unless it equals the stored object. into is an empty object of
	// the type.
	Update(ctx context.Context, name string, into runtime.Object, change func(obj runtime.Object) error) error
	// Replace stores obj in place of an unreadable object.
	Replace(ctx context.Context, name string, obj, into runtime.Object) error
	// Delete removes an object, whatever its finalizers, if allowed returns no error for the object.
	Delete(ctx context.Context, name string, into runtime.Object, allowed func(obj runtime.Object) error) error
	// Release removes a finalizer of an object that is being deleted, and deletes the object with its last finalizer.
	Release(ctx context.Context, name string, uid types.UID, finalizer string, empty func() runtime.Object) error
}

var _ Objects = (*Typed)(nil)
