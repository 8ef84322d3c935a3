// Package placement decides which shard holds a logical cluster. The Workspace of a cluster, in its parent, has the record of that; so the
// answer is found by climbing from the cluster to root.
package placement

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// RootShard is the name of the shard that holds root, and the records of homes.
const RootShard = "root"

// Record says which shard holds the logical cluster of a workspace.
type Record struct {
	Shard string
	// Epoch rises each time the cluster gets a new place; zero means that the record is invalid.
	Epoch   uint64
	Cluster logicalcluster.Name
	// UID of the LogicalCluster; empty if it was created on the shard of its parent.
	UID types.UID
}

// Valid reports whether the record names a place.
func (r Record) Valid() bool { return r.Shard != "" && r.Cluster != "" && r.Epoch > 0 }

// Of returns the record in a Workspace.
func Of(ws *tenancyv1alpha1.Workspace) Record {
	return Record{
		Shard:   ws.Annotations[tenancyv1alpha1.ShardAnnotation],
		Epoch:   EpochOf(ws.Annotations),
		Cluster: logicalcluster.Name(cmp.Or(ws.Spec.Cluster, ws.Annotations[tenancyv1alpha1.ClusterAnnotation])),
		UID:     types.UID(ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation]),
	}
}

// EpochOf returns the epoch in the annotations of a Workspace or LogicalCluster: 1 if there is none, zero if it is invalid.
func EpochOf(annotations map[string]string) uint64 {
	text, ok := annotations[tenancyv1alpha1.EpochAnnotation]
	if !ok {
		return 1
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}
