package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limit limits the number of objects of clusters.
type Limit interface {
	// Add is called before an object is stored in the cluster of ctx, and settle afterwards. If Add returns an error, the
	// object is not stored.
	Add(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (settle func(stored bool), err error)
	// Deleted is called after an object is deleted.
	Deleted(cluster logicalcluster.Name, resource schema.GroupResource)
}

// SetLimit applies limit to every storage that is created afterwards.
func (b *Backend) SetLimit(limit Limit) { b.limit = limit }

// unlimited does not limit clusters.
type unlimited struct{}

func (unlimited) Add(context.Context, schema.GroupResource, runtime.Object) (func(bool), error) {
	return func(bool) {}, nil
}

func (unlimited) Deleted(logicalcluster.Name, schema.GroupResource) {}
