// Package references finds what objects refer to in other logical clusters: a cluster by its path, and an object by its name. One of
// several shards asks the others for what it has not received yet.
package references

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// arrivalPoll and arrivalTimeout define how often, and for how long, a request waits for an object of another shard.
	arrivalPoll    = 5 * time.Millisecond
	arrivalTimeout = 3 * time.Second
)

// Shards are the other shards. Their errors are for clients: the request can be sent again.
type Shards interface {
	// Locate returns the logical cluster at a path, according to the shards that hold the workspaces on it; false if there is none.
	Locate(ctx context.Context, path string) (logicalcluster.Name, bool, error)
	// Has reports whether the shard that holds a cluster has an object.
	Has(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource, name string) (bool, error)
}

// References finds what objects refer to.
//
// Invariants:
//   - What this shard has in memory costs no question.
//   - Absence is the answer of the shard that holds the object. What it has, and this shard does not have yet, is an error with a retry
//     delay.
type References struct {
	index    *pathindex.Index
	clusters informers.Lister[*corev1alpha1.LogicalCluster]
	// shards is nil if there are no others.
	shards   Shards
	patience time.Duration
}

// New returns the references between the objects of set. index resolves its paths.
func New(set *informers.Set, index *pathindex.Index) *References {
	return &References{index: index, clusters: set.LogicalClusters, patience: arrivalTimeout}
}

// Share adds the other shards. It must be called before the first request.
func (r *References) Share(shards Shards) { r.shards = shards }

// Cluster returns the logical cluster at a path in an object of cluster from, and from for an empty path; false if there is none.
func (r *References) Cluster(ctx context.Context, from logicalcluster.Name, path string) (logicalcluster.Name, bool, error) {
	if path == "" {
		return from, true, nil
	}
	r.index.Current(ctx, path)
	place, ok := r.index.From(from, path)
	if ok || r.shards == nil {
		return place.Cluster, place.Cluster != "", nil
	}
	return r.shards.Locate(ctx, r.index.Relative(from, path))
}

// Await returns nil when known reports that this shard has an object of a cluster, or if no shard has it.
func (r *References) Await(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource, name string,
	known func() bool) error {
	if known() || r.shards == nil || r.isHere(cluster) {
		return nil
	}
	exists, err := r.shards.Has(ctx, cluster, resource, name)
	if err != nil || !exists {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, arrivalPoll, r.patience, true, func(context.Context) (bool, error) { return known(), nil })
	if err != nil {
		return Unavailable(
			fmt.Sprintf("%s %q of logical cluster %s is on another shard, and this shard has not received it yet: retry the request",
				resource, name, cluster),
		)
	}
	return nil
}

// Find returns an object of a cluster, which another shard can hold, and nil if no shard has it. get returns what this shard has. An error
// is retriable.
func Find[T any](ctx context.Context, r *References, cluster logicalcluster.Name, resource schema.GroupResource, name string,
	get func() (*T, error)) (found *T, err error) {
	err = r.Await(ctx, cluster, resource, name, func() bool {
		found, _ = get()
		return found != nil
	})
	return found, err
}

// Exists reports whether a cluster has an object. known reports whether this shard has it.
func (r *References) Exists(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource, name string,
	known func() bool) (bool, error) {
	if known() {
		return true, nil
	}
	if r.shards == nil || r.isHere(cluster) {
		return false, nil
	}
	return r.shards.Has(ctx, cluster, resource, name)
}

func (r *References) isHere(cluster logicalcluster.Name) bool {
	_, err := r.clusters.GetLocal(cluster, "", corev1alpha1.LogicalClusterName)
	return err == nil
}

// Unavailable returns an error for clients that should send the request again.
func Unavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// IsRetriable reports whether an error only says that the answer is not known now.
func IsRetriable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
}
