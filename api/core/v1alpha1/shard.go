package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnschedulableAnnotation of a Shard excludes it from the scheduling of new workspaces, regardless of the value.
const UnschedulableAnnotation = "experimental.core.kcp.io/unschedulable"

// Resources of the capacity of a Shard.
const (
	ResourceLogicalClusters corev1.ResourceName = "logicalclusters"
	ResourceObjects         corev1.ResourceName = "objects"
	// ResourceBytes is the size of etcd's database.
	ResourceBytes corev1.ResourceName = "bytes"
)

// IncarnationAnnotation of a Shard is the ID of the store of the shard. Another server with the same name and another store is refused.
const IncarnationAnnotation = "internal.core.kcp.io/incarnation"

// Conditions of a Shard, and their reasons.
const (
	// ShardReady is True while the shard responds to the root shard.
	ShardReady               = "Ready"
	ReasonShardNotResponding = "NotResponding"
	ReasonShardOtherStore    = "OtherStore"
	// ShardClockSynchronized is False while the clocks of the shard and of the root shard differ by more than 10 seconds.
	ShardClockSynchronized = "ClockSynchronized"
	ReasonShardClocksApart = "ClocksApart"
	// ShardCacheServerMatches is False if the cache server of the shard belongs to another installation.
	ShardCacheServerMatches      = "CacheServerMatches"
	ReasonShardOtherInstallation = "OtherInstallation"
)

// AvailableToOtherShards is a condition of exports, endpoint slices and cached resources. It is False, with ReasonLimitExceeded, for an
// object that other shards cannot read because its logical cluster has too many objects for them. Other objects do not have the condition.
const (
	AvailableToOtherShards = "AvailableToOtherShards"
	ReasonLimitExceeded    = "LimitExceeded"
)

// Shard is a group of server processes that share one etcd. Shard objects are in the logical cluster root.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`,description="The region this shard is in"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.baseURL`,description="URL for other shards and proxies"
// +kubebuilder:printcolumn:name="External URL",type=string,JSONPath=`.spec.externalURL`,description="URL for users"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the shard responds"
// +kubebuilder:printcolumn:name="Logical clusters",type=string,JSONPath=`.status.used.logicalclusters`,description="Number of logical clusters on this shard"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Shard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ShardSpec `json:"spec,omitempty"`
	// +optional
	Status ShardStatus `json:"status,omitempty"`
}

// ShardSpec is the desired state of a shard.
type ShardSpec struct {
	// BaseURL is the URL for other shards and proxies.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	BaseURL string `json:"baseURL"`
	// ExternalURL is the URL for users. Defaults to baseURL.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	ExternalURL string `json:"externalURL,omitempty"`
	// VirtualWorkspaceURL is the URL of the virtual workspaces of the shard. Defaults to baseURL.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`
}

// ShardStatus is the observed state of a shard.
type ShardStatus struct {
	// Capacity limits what the shard holds, by the resources logicalclusters, objects and bytes. New workspaces go to other shards when
	// it is reached.
	//
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Used is what the shard holds, by the same resources. It is updated when it has changed by more than 5 percent.
	//
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// Conditions of the shard.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// ShardList is a list of Shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Shard `json:"items"`
}
