package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shard is a further shard of an installation of kcp, besides its RootShard. It holds workspaces in an etcd of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=kcp,shortName=kshard
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShard.ref.name`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.logicalClusters`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a Shard is part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'root'",message="root is the name of the root shard in kcp: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.rootShard.ref) || self.metadata.name != self.spec.rootShard.ref.name",message="a Shard and its RootShard would both own an EtcdCluster of this name: choose another name"
type Shard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShardSpec `json:"spec"`
	// +optional
	Status ShardStatus `json:"status,omitempty"`
}

// ShardSpec is the desired state of a shard.
type ShardSpec struct {
	CommonShardSpec `json:",inline"`

	// RootShard selects the installation that the shard belongs to.
	RootShard RootShardConfig `json:"rootShard"`
	// Cache selects the cache server. All shards of an installation use the same one, that of the RootShard: if this names another one, the
	// Shard is stalled.
	//
	// +optional
	Cache *CacheConfig `json:"cache,omitempty"`
	// CertificateTemplates customize certificates of the shard, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['server', 'service-account', 'virtual-workspaces', 'client', 'mounts-proxy', 'logical-cluster-admin', 'external-logical-cluster-admin'])",message="a Shard has no such certificate; it has server, service-account, virtual-workspaces, client, mounts-proxy, logical-cluster-admin and external-logical-cluster-admin"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Drain moves the logical clusters of the shard to other shards while they are in use, and stops the scheduling of workspaces to it. The
	// condition Drained and status.drain report the progress. Set to false, it stops: what has moved stays where it is.
	//
	// +optional
	Drain bool `json:"drain,omitempty"`
}

// RootShardConfig selects an installation.
//
// +kubebuilder:validation:XValidation:rule="has(self.ref)",message="set ref to the name of a RootShard"
// +kubebuilder:validation:XValidation:rule="!has(self.ref) || !has(oldSelf.ref) || self.ref.name == oldSelf.ref.name",message="the RootShard is immutable, because certificates and data belong to its installation: create another object"
type RootShardConfig struct {
	// Reference names a RootShard.
	//
	// +optional
	Reference *LocalReference `json:"ref,omitempty"`
}

// ShardStatus is the observed state of a shard.
type ShardStatus struct {
	ComponentStatus `json:",inline"`

	// LogicalClusters is the number of logical clusters that the shard holds.
	//
	// +optional
	LogicalClusters *int64 `json:"logicalClusters,omitempty"`
	// Drain is the progress of spec.drain.
	//
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`
}

// DrainStatus is the progress of spec.drain.
type DrainStatus struct {
	// Total is the number of logical clusters that the shard held when it began.
	//
	// +optional
	Total int64 `json:"total,omitempty"`
	// Remaining is the number of logical clusters that the shard still holds.
	Remaining int64 `json:"remaining"`
	// Moving is the number of these that move now.
	//
	// +optional
	Moving int32 `json:"moving,omitempty"`
	// Failed is the number of these that cannot move.
	//
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Failures are the first ten of these.
	//
	// +optional
	// +listType=atomic
	Failures []DrainFailure `json:"failures,omitempty"`
}

// DrainFailure is a logical cluster that cannot move.
type DrainFailure struct {
	LogicalCluster string `json:"logicalCluster"`
	// Workspace is the path of its workspace.
	//
	// +optional
	Workspace string `json:"workspace,omitempty"`
	Message   string `json:"message"`
}

// ShardList is a list of Shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Shard `json:"items"`
}
