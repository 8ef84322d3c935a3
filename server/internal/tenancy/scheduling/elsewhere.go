package scheduling

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	kcpstorage "github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// CreationBudget is how long a request waits for the shard that creates its logical cluster. After that, the controller of workspaces
// continues.
const CreationBudget = 2 * time.Second

// Remote creates logical clusters on other shards.
type Remote interface {
	// Create returns the LogicalCluster as its shard has it, also if it was created for the same Workspace before. It fails with
	// AlreadyExists if the name cannot be used.
	Create(ctx context.Context, shard string, name logicalcluster.Name, lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error)
}

// Workspaces stores Workspaces.
type Workspaces interface {
	Update(ctx context.Context, name string, into runtime.Object, change func(obj runtime.Object) error) error
}

// Revisions stores Workspaces whose state is known.
type Revisions interface {
	// Revise is Update of Workspaces, and reads the object only if known is not its current state.
	Revise(ctx context.Context, name string, known, into runtime.Object, change func(obj runtime.Object) error) error
}

// ShardOf returns the shard that a workspace is placed on. A workspace without a record is placed on this shard.
func (s *Scheduler) ShardOf(ws *tenancyv1alpha1.Workspace) string {
	if shard := ws.Annotations[tenancyv1alpha1.ShardAnnotation]; s.Remote != nil && shard != "" {
		return shard
	}
	return s.ShardName
}

// IsElsewhere reports whether a workspace is placed on another shard.
func (s *Scheduler) IsElsewhere(ws *tenancyv1alpha1.Workspace) bool {
	return s.ShardOf(ws) != s.ShardName
}

// externalURL returns the URL of a shard for users.
func (s *Scheduler) externalURL(shard string) string {
	if shard == s.ShardName {
		return s.ExternalURL
	}
	found, err := s.Shards.Get(logicalcluster.Root, "", shard)
	if err != nil {
		return s.ExternalURL // the shards of an installation usually have the URL of a front proxy
	}
	return found.Spec.ExternalURL
}

// SetPlacement records the shard and the name of the logical cluster of a workspace, before or after that exists.
func SetPlacement(ws *tenancyv1alpha1.Workspace, shard string, name logicalcluster.Name) {
	if ws.Annotations == nil {
		ws.Annotations = map[string]string{}
	}
	ws.Annotations[tenancyv1alpha1.ShardAnnotation] = shard
	ws.Annotations[tenancyv1alpha1.ShardHashAnnotation] = ShardHash(shard)
	ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = string(name)
	if !slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer) {
		ws.Finalizers = append(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
	}
}

// RemovePlacement makes a workspace one that has no shard yet.
func RemovePlacement(ws *tenancyv1alpha1.Workspace) {
	for _, key := range []string{tenancyv1alpha1.ShardAnnotation, tenancyv1alpha1.ShardHashAnnotation, tenancyv1alpha1.ClusterAnnotation} {
		delete(ws.Annotations, key)
	}
}

var errPlacedAgain = errors.New("its logical cluster is another one by now")

// complete creates the logical cluster of a stored workspace on its shard, within the request that created the workspace, and records it.
// If that fails, the controller of workspaces continues. If ws has a resource version, it is the stored state, which complete may change.
// It returns the new state, or nil if others have changed the workspace too.
func (s *Scheduler) complete(ctx context.Context, ws *tenancyv1alpha1.Workspace, name logicalcluster.Name,
	lc *corev1alpha1.LogicalCluster) (stored *tenancyv1alpha1.Workspace, done bool) {
	ctx = kcpstorage.WithoutRestriction(ctx)
	limited, cancel := context.WithTimeout(ctx, CreationBudget)
	defer cancel()
	there := fairqueue.From(ctx).Stand() // the request waits for another shard
	created, err := s.Remote.Create(limited, s.ShardOf(ws), name, lc)
	there()
	if err == nil {
		stored, err = s.record(ctx, ws, name, created)
	}
	if err != nil {
		decisionlog.ForDecision(ctx).Info("Leaving the workspace to the scheduling controller", decisionlog.Cluster, logicalcluster.Of(ws),
			decisionlog.Name, ws.Name, decisionlog.Reason, err)
	}
	return stored, err == nil
}

// record records the location of a workspace whose logical cluster another shard has created.
func (s *Scheduler) record(ctx context.Context, ws *tenancyv1alpha1.Workspace, name logicalcluster.Name,
	created *corev1alpha1.LogicalCluster) (*tenancyv1alpha1.Workspace, error) {
	uid, version, alone := ws.UID, ws.ResourceVersion, false
	var known runtime.Object
	if version != "" {
		known = ws
	}
	stored := &tenancyv1alpha1.Workspace{}
	err := s.Stored.Revise(ctx, ws.Name, known, stored, func(obj runtime.Object) error {
		live := obj.(*tenancyv1alpha1.Workspace)
		alone = live.ResourceVersion == version
		if live.UID != uid || live.DeletionTimestamp != nil || live.Annotations[tenancyv1alpha1.ClusterAnnotation] != string(name) {
			return apierrors.NewConflict(workspaces, live.Name, errPlacedAgain)
		}
		if live.Spec.Cluster == "" {
			live.Generation++
			s.SetLocation(live, name, created)
		}
		return nil
	})
	if err != nil || !alone {
		return nil, err
	}
	return stored, nil
}
