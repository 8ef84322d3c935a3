package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limit decides how many objects clusters hold.
type Limit interface {
	// Add is called before an object is stored in the cluster of ctx, and settle afterwards. An error keeps it from being
	// stored.
	Add(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (settle func(stored bool), err error)
	// Deleted is called when an object has gone.
	Deleted(cluster logicalcluster.Name, resource schema.GroupResource)
}

// SetLimit puts every storage that is made from now on under limit.
func (b *Backend) SetLimit(limit Limit) { b.limit = limit }

// unlimited lets clusters hold what they want.
type unlimited struct{}

func (unlimited) Add(context.Context, schema.GroupResource, runtime.Object) (func(bool), error) {
	return func(bool) {}, nil
}

func (unlimited) Deleted(logicalcluster.Name, schema.GroupResource) {}
