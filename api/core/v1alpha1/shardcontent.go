package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShardLogicalClusters are logical clusters that a shard holds. The workspace root serves them to those who may get shards/logicalclusters
// there, at /apis/core.kcp.io/v1alpha1/shards/NAME/logicalclusters with the parameters limit and continue. They are not stored, and contain
// nothing of what is in the logical clusters.
type ShardLogicalClusters struct {
	metav1.TypeMeta `json:",inline"`

	// Total is the number of logical clusters of the shard, including those on other pages.
	Total int64 `json:"total"`
	// Continue is the parameter of the next page. It is empty on the last one.
	Continue string                `json:"continue,omitempty"`
	Items    []ShardLogicalCluster `json:"items"`
}

// ShardLogicalCluster is a logical cluster that a shard holds.
type ShardLogicalCluster struct {
	Name string `json:"name"`
	// Path is the path of its workspace; empty if it is not known.
	Path string `json:"path,omitempty"`
	// Selector is the label selector in spec.location of its Workspace, in the form of query parameters. Empty: any shard may hold it.
	Selector string `json:"selector,omitempty"`
	// Stays is why it cannot move now. Empty: it can.
	Stays string `json:"stays,omitempty"`
	// Deleting reports whether it is being deleted.
	Deleting bool `json:"deleting,omitempty"`
}
