package shards

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// The name of the root shard, and of the logical clusters without a Workspace that it holds.
const (
	rootShard = "root"
	root      = "root"
	homes     = "homes"
)

// clusterAnnotation of an object is its logical cluster.
const clusterAnnotation = "kcp.io/cluster"

// Owner is the Workspace of a logical cluster.
type Owner struct {
	Cluster string    `json:"cluster"`
	Name    string    `json:"name"`
	UID     types.UID `json:"uid"`
}

func (o Owner) String() string { return o.Cluster + "|" + o.Name }

// Held is a LogicalCluster that a shard holds.
type Held struct {
	Shard   string    `json:"shard"`
	Cluster string    `json:"cluster"`
	UID     types.UID `json:"uid"`
	Epoch   uint64    `json:"epoch"`
	Path    string    `json:"path,omitempty"`
	// Owner is nil for root and old homes.
	Owner    *Owner `json:"owner,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
}

// Record is what a Workspace says about the place of its logical cluster.
type Record struct {
	Owner
	// On is the shard that has the Workspace.
	On string
	// Shard holds the logical cluster Cluster since Epoch.
	Shard   string
	Cluster string
	Epoch   uint64
	// Deleting reports that the Workspace is being deleted.
	Deleting bool
}

// State is what all shards hold.
type State struct {
	Held    []Held
	Records []Record
	// Unread are the shards that did not respond or refused the user, with the reasons.
	Unread map[string]error
	// Known are the shards that have a Shard object.
	Known map[string]bool
}

func heldOf(shard string, lc *corev1alpha1.LogicalCluster) Held {
	h := Held{Shard: shard, Cluster: lc.Annotations[clusterAnnotation], UID: lc.UID, Epoch: epochOf(lc.Annotations),
		Path: lc.Annotations[corev1alpha1.PathAnnotation], Deleting: lc.DeletionTimestamp != nil}
	if o := lc.Spec.Owner; o != nil && o.Resource == "workspaces" {
		h.Owner = &Owner{Cluster: o.Cluster, Name: o.Name, UID: o.UID}
	}
	return h
}

// recordOf returns the record of a Workspace on a shard; false if it has no logical cluster.
func recordOf(shard string, ws *tenancyv1alpha1.Workspace) (Record, bool) {
	return Record{
		Owner: Owner{Cluster: ws.Annotations[clusterAnnotation], Name: ws.Name, UID: ws.UID}, On: shard,
		Shard: cmp.Or(ws.Annotations[tenancyv1alpha1.ShardAnnotation], shard), Cluster: ws.Spec.Cluster, Epoch: epochOf(ws.Annotations),
		Deleting: ws.DeletionTimestamp != nil,
	}, ws.Spec.Cluster != "" && ws.Spec.Mount == nil
}

func epochOf(annotations map[string]string) uint64 {
	text, ok := annotations[tenancyv1alpha1.EpochAnnotation]
	if !ok {
		return 1
	}
	epoch, _ := strconv.ParseUint(text, 10, 64) // zero is invalid, and matches nothing
	return epoch
}
