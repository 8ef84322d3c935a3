package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Partition is a group of shards. An endpoint slice can refer to a Partition to list only the endpoints of its shards.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.metadata.ownerReferences[*].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Partition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PartitionSpec `json:"spec"`
}

// PartitionSpec is the desired state of a partition.
type PartitionSpec struct {
	// Selector selects Shards by their labels. Defaults to all shards.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// PartitionList is a list of Partitions.
//
// +kubebuilder:object:root=true
type PartitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Partition `json:"items"`
}
