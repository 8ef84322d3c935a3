package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootShard is the first shard of an installation of kcp, which holds the workspace root.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=rshard
// +kubebuilder:printcolumn:name="Hostname",type=string,JSONPath=`.spec.external.hostname`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a RootShard becomes part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
type RootShard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RootShardSpec `json:"spec"`
	// +optional
	Status RootShardStatus `json:"status,omitempty"`
}

// RootShardSpec is what the root shard should be.
type RootShardSpec struct {
	CommonShardSpec `json:",inline"`

	// External is how clients outside of the cluster reach kcp.
	External ExternalConfig `json:"external"`
	// Cache says where the shards of the installation share what all must know. Unset: in the root shard.
	//
	// +optional
	Cache *CacheConfig `json:"cache,omitempty"`
	// Certificates says who signs. Unset: a self-signed authority that the operator makes.
	//
	// +optional
	Certificates *Certificates `json:"certificates,omitempty"`
	// CertificateTemplates change certificates of the root shard, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['root-ca', 'server-ca', 'client-ca', 'requestheader-client-ca', 'service-account-ca', 'server', 'service-account', 'virtual-workspaces', 'client', 'logical-cluster-admin', 'external-logical-cluster-admin', 'kcp-operator'])",message="a RootShard has no such certificate; it has root-ca, server-ca, client-ca, requestheader-client-ca, service-account-ca, server, service-account, virtual-workspaces, client, logical-cluster-admin, external-logical-cluster-admin and kcp-operator"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Proxy has no effect: it was about a front proxy that an operator goes through. This one goes to the shard itself.
	//
	// +optional
	Proxy *RootShardProxySpec `json:"proxy,omitempty"`
}

// CommonShardSpec is what is said of every shard.
type CommonShardSpec struct {
	// ClusterDomain is the domain of Services. Unset: cluster.local.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// ShardBaseURL is how other components reach the shard. Unset: the URL of its Service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.startsWith('https://')",message="the base URL of a shard begins with https://"
	ShardBaseURL string `json:"shardBaseURL,omitempty"`
	// Etcd says where the data is.
	Etcd EtcdConfig `json:"etcd"`
	// Image of the server.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Replicas is the number of pods. Unset: 2, unless an autoscaler has set another number.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources of each pod. What is set here is laid over requests of 1 CPU and 1Gi, and limits of 2 CPU and 2Gi.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Audit says what is recorded of requests.
	//
	// +optional
	Audit *AuditSpec `json:"audit,omitempty"`
	// Authorization says who else is asked whether a request is allowed.
	//
	// +optional
	Authorization *AuthorizationSpec `json:"authorization,omitempty"`
	// Auth says how clients prove who they are.
	//
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`
	// KCPVirtualWorkspace names the VirtualWorkspace that serves the virtual workspaces. Unset: the shard does.
	//
	// +optional
	KCPVirtualWorkspace *LocalReference `json:"kcpVirtualWorkspace,omitempty"`
	// ServiceTemplate changes the Service.
	//
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// DeploymentTemplate changes the workload and its pods.
	//
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`
	// CABundleSecretRef names a Secret whose tls.crt has further authorities that vouch for servers.
	//
	// +optional
	CABundleSecretRef *LocalReference `json:"caBundleSecretRef,omitempty"`
	// ClientCABundleRef names a Secret whose tls.crt has further authorities that vouch for clients.
	//
	// +optional
	ClientCABundleRef *LocalReference `json:"clientCABundleRef,omitempty"`
	// Logging says how much is logged.
	//
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
	// PDB is about how many pods may be evicted at once: one, if there are two or more.
	//
	// +optional
	PDB *PDBSpec `json:"pdb,omitempty"`
	// Monitoring of the pods.
	//
	// +optional
	Monitoring *MonitoringSpec `json:"monitoring,omitempty"`
	// NetworkPolicy of the pods. Unset: none is made.
	//
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`

	ExtraSpec `json:",inline"`
}

// ExtraSpec is what is added to the container of a component.
type ExtraSpec struct {
	// ExtraArgs are added to the command line.
	//
	// +optional
	// +listType=atomic
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// ExtraVolumes are added to the pods.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumes []corev1.Volume `json:"extraVolumes,omitempty"`
	// ExtraVolumeMounts are added to the container.
	//
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	ExtraVolumeMounts []corev1.VolumeMount `json:"extraVolumeMounts,omitempty"`
}

// RootShardProxySpec is accepted, for the manifests that have it, and has no effect.
type RootShardProxySpec struct {
	// Image of the proxy. Unset: that of the shard.
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
	// ServiceTemplate changes the Service.
	//
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// DeploymentTemplate changes the workload and its pods.
	//
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`
	// CertificateTemplates change certificates of the proxy, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['server', 'kubeconfig', 'requestheader'])",message="a proxy has no such certificate; it has server, kubeconfig and requestheader"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Logging says how much is logged.
	//
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`

	ExtraSpec `json:",inline"`
}

// CacheConfig says where shards share what all must know.
type CacheConfig struct {
	// Reference names a CacheServer.
	//
	// +optional
	Reference *LocalReference `json:"ref,omitempty"`
	// Embedded has no effect: the root shard has the cache if there is no ref. Deprecated.
	//
	// +optional
	Embedded *EmbeddedCacheConfig `json:"embedded,omitempty"`
}

// EmbeddedCacheConfig has no effect any more.
type EmbeddedCacheConfig struct {
	// Enabled has no effect.
	//
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// RootShardStatus is what is known of the root shard.
type RootShardStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase sums up the conditions.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Available, CertificatesReady, CertificatesExpiring, EtcdReady, ReferenceValid,
	// RolloutHeld and Rotating.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Shards that belong to this one.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Shards []ShardReference `json:"shards,omitempty"`
	// Image that pods were ready with last. It stays when a new operator would choose another, until spec.image names another one. An image
	// that no pod was ready with is not recorded: when spec.image no longer names it, pods run this one again.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// Version that pods have run, if the tag of their image tells it. From it kcp goes to the next minor version, not further and not
	// back, unless the annotation operator.kcp.io/allow-version names the version that is asked for.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Pods is how many pods of how many are ready, as 2/2.
	//
	// +optional
	Pods string `json:"pods,omitempty"`
	// URL at which clients outside of the cluster reach kcp.
	//
	// +optional
	URL string `json:"url,omitempty"`
	// Certificates of the shard, and until when they are valid.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// Renewed is the value of the annotation operator.kcp.io/renew for which certificates were last renewed.
	//
	// +optional
	Renewed string `json:"renewed,omitempty"`
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
