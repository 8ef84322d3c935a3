package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// callPrepare is the first call of a destination, to each shard that may hold the cluster.
const callPrepare = "migrations.prepare"

// Preparation is the question of a destination whether a shard holds a cluster, and lets it move.
type Preparation struct {
	Migration Migration `json:"migration"` // without Origin and Epoch until it has begun
	// Version is that of the destination.
	Version string `json:"version"`
}

// Prepared is the answer. LogicalCluster is nil if the shard does not hold the cluster.
type Prepared struct {
	LogicalCluster *corev1alpha1.LogicalCluster `json:"logicalCluster,omitempty"`
	// Refused is why the cluster does not move.
	Refused string `json:"refused,omitempty"`
}

// Preparer prepares clusters that leave this shard: it stores with them what other shards cannot read here.
type Preparer struct {
	Shard, Version string
	Copies         *storage.Copies
	Clusters       storage.Objects
	Set            *informers.Set
	// Ancestors returns the clusters above a cluster, from the outermost to the parent.
	Ancestors func(logicalcluster.Name) ([]logicalcluster.Name, bool)
	Accepts   func(context.Context, Migration) error
	// Describe adds annotations to a LogicalCluster that moves.
	Describe func(*corev1alpha1.LogicalCluster) error
}

// Serve adds the call.
func (p *Preparer) Serve(s *peers.Server) {
	peers.Handle(s, callPrepare, []peers.Kind{peers.Shard}, p.prepare)
}

func (p *Preparer) prepare(ctx context.Context, caller peers.Identity, in Preparation) (Prepared, error) {
	cluster := in.Migration.Cluster
	if caller.Name != in.Migration.Destination || caller.Name == p.Shard {
		return Prepared{}, apierrors.NewForbidden(migrationResource, in.Migration.Name, fmt.Errorf("%s is not the destination", caller))
	}
	stored, err := logicalClusterOf(ctx, p.Copies, cluster)
	if err != nil || stored == nil {
		return Prepared{}, err
	}
	begun := in.Migration.Origin == p.Shard
	if err := p.Accepts(ctx, in.Migration); err != nil && !(begun && IsCanceled(err)) {
		return Prepared{}, err
	}
	if begun { // it was prepared. The destination continues after a crash, or cancels
		return Prepared{LogicalCluster: stored}, nil
	}
	ctx = logicalcluster.WithName(ctx, cluster)
	lc := &corev1alpha1.LogicalCluster{}
	if err := p.Clusters.Get(ctx, corev1alpha1.LogicalClusterName, lc); err != nil {
		return Prepared{}, err // it may be fenced
	}
	if refused := p.refuse(lc, in.Version); refused != "" {
		return Prepared{LogicalCluster: lc, Refused: refused}, nil
	}
	if err := p.describe(ctx, cluster, lc); err != nil {
		return Prepared{}, err
	}
	return Prepared{LogicalCluster: lc}, p.DescribeChildren(ctx, cluster)
}

// refuse returns why a cluster of this shard does not move, or an empty string.
func (p *Preparer) refuse(lc *corev1alpha1.LogicalCluster, destination string) string {
	if reason := staying(lc); reason != "" {
		return reason
	}
	if isOlder(destination, p.Version) {
		return fmt.Sprintf("the destination has version %s, which is older than %s of the origin: upgrade it first", destination, p.Version)
	}
	return ""
}

// isOlder reports whether a version has an older minor version than another one.
func isOlder(a, b string) bool {
	left, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	right, err := version.ParseGeneric(b)
	return err == nil && (left.Major() < right.Major() || left.Major() == right.Major() && left.Minor() < right.Minor())
}

// describe stores in a LogicalCluster what other shards must know of it.
func (p *Preparer) describe(ctx context.Context, cluster logicalcluster.Name, into *corev1alpha1.LogicalCluster) error {
	ancestors, ok := p.Ancestors(cluster)
	if !ok || len(ancestors) == 0 {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the logical clusters above %q are not known to this shard", cluster))
	}
	return p.Clusters.Update(ctx, corev1alpha1.LogicalClusterName, into, func(obj runtime.Object) error {
		lc := obj.(*corev1alpha1.LogicalCluster)
		p.setPlace(lc, ancestors)
		if p.Describe == nil {
			return nil
		}
		return p.Describe(lc)
	})
}

// setPlace records the place of a cluster in the tree. The shard of its Workspace is this one unless another is recorded.
func (p *Preparer) setPlace(lc *corev1alpha1.LogicalCluster, ancestors []logicalcluster.Name) {
	names := make([]string, len(ancestors))
	for i, name := range ancestors {
		names[i] = string(name)
	}
	if lc.Annotations == nil {
		lc.Annotations = map[string]string{}
	}
	lc.Annotations[tenancyv1alpha1.AncestorsAnnotation] = strings.Join(names, ",")
	if lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation] == "" {
		lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation] = p.Shard
	}
}

// DescribeChildren stores in the LogicalClusters of this shard that are children of a cluster where they are in the tree: after the move,
// the shard cannot read that from the parent.
func (p *Preparer) DescribeChildren(ctx context.Context, cluster logicalcluster.Name) error {
	above, ok := p.Ancestors(cluster)
	if !ok {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the logical clusters above %q are not known to this shard", cluster))
	}
	above = append(slices.Clone(above), cluster)
	for after := ""; ; {
		page, next, err := p.Copies.Page(logicalcluster.WithName(ctx, cluster), 0, storage.CollectionOfCustom(workspaces), after)
		if err != nil {
			return err
		}
		for _, entry := range page {
			if err := p.describeChild(ctx, entry, above); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// describeChild stores in the LogicalCluster of a stored Workspace where it is in the tree.
func (p *Preparer) describeChild(ctx context.Context, entry storage.Entry, above []logicalcluster.Name) error {
	ws := &tenancyv1alpha1.Workspace{}
	if err := json.Unmarshal(entry.Value, ws); err != nil {
		return nil // nothing else reads it either
	}
	record := placement.Of(ws)
	lc, err := p.Set.LogicalClusters.GetLocal(record.Cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || record.Shard != p.Shard || lc.Annotations[tenancyv1alpha1.AncestorsAnnotation] != "" || lc.Spec.Owner == nil {
		return nil
	}
	err = p.Clusters.Update(logicalcluster.WithName(ctx, record.Cluster), corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{},
		func(obj runtime.Object) error {
			p.setPlace(obj.(*corev1alpha1.LogicalCluster), above)
			return nil
		})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("recording the place of logical cluster %s: %w", record.Cluster, err)
	}
	return nil
}
