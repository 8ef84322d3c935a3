package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootShard is the first shard of an installation of kcp, which stores the workspace root. Further shards, front proxies and virtual
// workspaces refer to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=kcp,shortName=rshard
// +kubebuilder:printcolumn:name="Hostname",type=string,JSONPath=`.spec.external.hostname`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a RootShard is part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
type RootShard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RootShardSpec `json:"spec"`
	// +optional
	Status RootShardStatus `json:"status,omitempty"`
}

// RootShardSpec is the desired state of the root shard.
type RootShardSpec struct {
	CommonShardSpec `json:",inline"`

	// External is the address of kcp for clients outside of the cluster.
	External ExternalConfig `json:"external"`
	// Cache selects the cache server that shares objects among all shards of the installation. Unset: the root shard contains it.
	//
	// +optional
	Cache *CacheConfig `json:"cache,omitempty"`
	// Certificates selects the issuer of certificates. Unset: a self-signed CA that the operator creates.
	//
	// +optional
	Certificates *Certificates `json:"certificates,omitempty"`
	// CertificateTemplates customize certificates of the root shard, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['root-ca', 'server-ca', 'client-ca', 'requestheader-client-ca', 'service-account-ca', 'peer-ca', 'server', 'service-account', 'virtual-workspaces', 'client', 'logical-cluster-admin', 'external-logical-cluster-admin', 'kcp-operator'])",message="a RootShard has no such certificate; it has root-ca, server-ca, client-ca, requestheader-client-ca, service-account-ca, peer-ca, server, service-account, virtual-workspaces, client, logical-cluster-admin, external-logical-cluster-admin and kcp-operator"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Upgrade controls the upgrade of the installation.
	//
	// +optional
	Upgrade *UpgradeSpec `json:"upgrade,omitempty"`
	// Proxy has no effect: it configured a front proxy for connections of the operator, which now connects to the shard directly.
	//
	// +optional
	Proxy *RootShardProxySpec `json:"proxy,omitempty"`
}

// UpgradeSpec controls the upgrade of an installation.
type UpgradeSpec struct {
	// Paused keeps the former image of all components that follow the one of the RootShard and whose upgrade has not begun.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
	// ShardBatchSize is the number of Shards that are upgraded at the same time. They are in batches of this size, in order of their names;
	// a batch begins when all Shards of earlier batches are ready. Unset: 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	ShardBatchSize int32 `json:"shardBatchSize,omitempty"`
	// MaxBackupAge is the maximum age of the last snapshot of each managed etcd of the installation for which an EtcdBackupSchedule exists: if
	// the snapshot is older, the upgrade does not begin. Snapshots of EtcdBackups count, too. Unset: the last snapshot must not have failed,
	// however old it is.
	//
	// +optional
	MaxBackupAge *Duration `json:"maxBackupAge,omitempty"`
}

// CommonShardSpec has the fields that every shard has.
type CommonShardSpec struct {
	// ClusterDomain is the domain of Services. Unset: cluster.local.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// ShardBaseURL is the URL of the shard for other components. Unset: the URL of its Service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.startsWith('https://')",message="must begin with https://"
	ShardBaseURL string `json:"shardBaseURL,omitempty"`
	// Etcd selects the etcd that stores the data. Each shard needs its own, or its own prefix.
	Etcd EtcdConfig `json:"etcd"`
	// Audit configures audit logging.
	//
	// +optional
	Audit *AuditSpec `json:"audit,omitempty"`
	// Authorization configures authorization besides RBAC.
	//
	// +optional
	Authorization *AuthorizationSpec `json:"authorization,omitempty"`
	// Auth configures authentication.
	//
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`
	// KCPVirtualWorkspace names the VirtualWorkspace that serves the virtual workspaces of the shard. Its target must be this shard. Unset:
	// the shard serves them itself.
	//
	// +optional
	KCPVirtualWorkspace *LocalReference `json:"kcpVirtualWorkspace,omitempty"`
	// CABundleSecretRef names a Secret whose tls.crt has additional CAs to trust for server certificates.
	//
	// +optional
	CABundleSecretRef *LocalReference `json:"caBundleSecretRef,omitempty"`
	// ClientCABundleRef names a Secret whose tls.crt has additional CAs to trust for client certificates.
	//
	// +optional
	ClientCABundleRef *LocalReference `json:"clientCABundleRef,omitempty"`

	ComponentSpec `json:",inline"`
}

// RootShardProxySpec is accepted for compatibility with existing manifests, and has no effect.
type RootShardProxySpec struct {
	// Image of the proxy. Unset: the image of the shard.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Replicas is the number of pods. Unset: 2, unless an autoscaler has set another number.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources of each pod.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ServiceTemplate customizes the Service.
	//
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// DeploymentTemplate customizes the workload and its pods.
	//
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`
	// CertificateTemplates customize certificates of the proxy, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['server', 'kubeconfig', 'requestheader'])",message="a proxy has no such certificate; it has server, kubeconfig and requestheader"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Logging configures logging.
	//
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`

	ExtraSpec `json:",inline"`
}

// CacheConfig selects the cache server that shares objects among all shards.
type CacheConfig struct {
	// Reference names a CacheServer.
	//
	// +optional
	Reference *LocalReference `json:"ref,omitempty"`
	// Embedded has no effect: without ref, the root shard contains the cache. Deprecated.
	//
	// +optional
	Embedded *EmbeddedCacheConfig `json:"embedded,omitempty"`
}

// EmbeddedCacheConfig has no effect.
type EmbeddedCacheConfig struct {
	// Enabled has no effect.
	//
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// RootShardStatus is the observed state of the root shard.
type RootShardStatus struct {
	ComponentStatus `json:",inline"`

	// Shards of the installation that refer to this root shard.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Shards []ShardReference `json:"shards,omitempty"`
}

// ShardReference names a shard of the installation.
type ShardReference struct {
	// Name of the shard.
	Name string `json:"name"`
}

// RootShardList is a list of RootShards.
//
// +kubebuilder:object:root=true
type RootShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RootShard `json:"items"`
}
