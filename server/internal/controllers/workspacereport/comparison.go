package workspacereport

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/workspaces"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// comparer compares everything with another shard.
type comparer struct{ Inputs }

// NewComparer returns the controller that compares everything with each other shard. Its keys are Shards.
func NewComparer(in Inputs) *runner.Controller {
	c := &comparer{in}
	controller := runner.New("workspacecomparison", 2, c.reconcile)
	controller.ExpectFailures()
	in.Set.Shards.AddHandlerForAll(func(old, obj runtime.Object) {
		if obj == nil {
			return
		}
		shard := obj.(*corev1alpha1.Shard)
		if shard.Name != in.ShardName && (old == nil || incarnationOf(old) != incarnationOf(obj)) {
			controller.Enqueue(informers.Key{Cluster: logicalcluster.Root, Name: shard.Name})
		}
	})
	return controller
}

func incarnationOf(obj runtime.Object) string {
	return obj.(*corev1alpha1.Shard).Annotations[corev1alpha1.IncarnationAnnotation]
}

// reconcile compares everything with a shard. After an error it begins again.
func (c *comparer) reconcile(ctx context.Context, key informers.Key) error {
	if _, err := c.Set.Shards.Get(key.Cluster, "", key.Name); err != nil {
		return runner.IgnoreNotFound(err)
	}
	if err := c.reportAll(ctx, key.Name); err != nil {
		return err
	}
	return c.readAll(ctx, key.Name)
}

// reportAll reports the states of all clusters whose Workspaces a shard was last seen to hold.
func (c *comparer) reportAll(ctx context.Context, shard string) error {
	var keys []informers.Key
	for lc := range c.Set.LogicalClusters.All() {
		if !c.isForOther(lc) {
			continue
		}
		key := informers.Key{Cluster: logicalcluster.Of(lc), Name: lc.Name}
		switch lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation] {
		case shard:
			keys = append(keys, key)
		case "": // its Workspace has moved away from this shard
			c.Changes.Enqueue(key)
		}
	}
	for page := range slices.Chunk(keys, workspaces.PageSize) {
		if err := c.reportPage(ctx, shard, page); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparer) reportPage(ctx context.Context, shard string, keys []informers.Key) error {
	var page []workspaces.State
	for _, key := range keys {
		if lc, err := c.Set.LogicalClusters.GetLocal(key.Cluster, "", key.Name); err == nil {
			page = append(page, workspaces.StateOf(lc))
		}
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	given, err := c.Calls.Report(limited, shard, page)
	if err != nil {
		return err
	}
	for i, verdict := range given {
		key := informers.Key{Cluster: page[i].Cluster, Name: corev1alpha1.LogicalClusterName}
		if verdict == workspaces.NotHeld || verdict == workspaces.Failed {
			c.Changes.Enqueue(key)
			continue
		}
		c.note(ctx, key, verdict)
	}
	return nil
}

// readAll shows the states of the clusters on a shard in the Workspaces of this one. A cluster that the shard has lost makes its Workspace
// unavailable.
func (c *comparer) readAll(ctx context.Context, shard string) error {
	var page []*tenancyv1alpha1.Workspace
	read := func() error {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := c.Calls.Compare(limited, shard, page)
		page = page[:0]
		return err
	}
	for ws := range c.Set.Workspaces.All() {
		if ws.DeletionTimestamp != nil || ws.Spec.Cluster == "" || placement.Of(ws).Shard != shard {
			continue
		}
		if page = append(page, ws); len(page) < workspaces.PageSize {
			continue
		}
		if err := read(); err != nil {
			return err
		}
	}
	if len(page) == 0 {
		return nil
	}
	return read()
}
