package tree

import (
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// EdgeOf returns the record of a Workspace. It is that of a deleted one while the workspace has no place.
func EdgeOf(ws *tenancyv1alpha1.Workspace) Edge {
	e := Edge{Parent: logicalcluster.Of(ws), Name: ws.Name}
	none := Edge{Parent: e.Parent, Name: e.Name, Deleted: true}
	if ws.Status.Phase == "" || ws.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling {
		return none
	}
	e.Unavailable = ws.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable
	if ws.Spec.Mount != nil {
		if e.URL = ws.Spec.URL; len(e.URL) > maxString {
			e.URL, e.Unavailable = "", true
		}
		if e.URL == "" && !e.Unavailable {
			return none
		}
		return e
	}
	record := placement.Of(ws)
	if ws.Spec.Cluster == "" {
		return none
	}
	e.Cluster, e.Shard, e.Epoch = record.Cluster, record.Shard, record.Epoch
	e.UID, _ = ParseUID(record.UID)
	return e
}

// ClusterOf returns the record of a LogicalCluster.
func ClusterOf(lc *corev1alpha1.LogicalCluster) Cluster {
	c := Cluster{
		Name: logicalcluster.Of(lc), Epoch: placement.EpochOf(lc.Annotations), Type: lc.Annotations[tenancyv1alpha1.TypeAnnotation],
	}
	c.UID, _ = ParseUID(lc.UID)
	if owner := lc.Spec.Owner; owner != nil {
		c.Parent, c.Workspace = logicalcluster.Name(owner.Cluster), owner.Name
	}
	if len(c.Type) > maxString {
		c.Type = ""
	}
	return c
}
