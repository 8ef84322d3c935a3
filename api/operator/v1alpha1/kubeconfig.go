package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Kubeconfig gives a user access to a workspace: a client certificate, and roles in the workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=kconf
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.targetName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 200",message="the name of a Kubeconfig is part of the name of its Certificate: at most 200 characters"
type Kubeconfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubeconfigSpec `json:"spec"`
	// +optional
	Status KubeconfigStatus `json:"status,omitempty"`
}

// KubeconfigSpec defines the user, the target and the roles.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.targetWorkspace) && has(self.authorization) && has(self.authorization.clusterRoleBindings.cluster))",message="targetWorkspace says where the roles are bound: remove authorization.clusterRoleBindings.cluster, which is deprecated"
type KubeconfigSpec struct {
	// Target is the server that the kubeconfig points at.
	Target KubeconfigTarget `json:"target"`
	// TargetWorkspace is the path of the workspace that the kubeconfig points at, in which the roles are bound.
	// Unset: root.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="a workspace is a path of names with colons between them, such as root:team:project"
	TargetWorkspace string `json:"targetWorkspace,omitempty"`
	// Username in the certificate.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.size() <= 64",message="a username in a certificate has at most 64 characters"
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username"`
	// Groups of the user. The operator adds a group that only this object uses, and binds the roles to it.
	//
	// +optional
	// +listType=set
	Groups []string `json:"groups,omitempty"`
	// Validity of the certificate. The certificate is renewed when a third of this time is left.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="must be at least 1h, the minimum of cert-manager"
	Validity Duration `json:"validity"`
	// SecretRef names the Secret to write the kubeconfig to, under the key kubeconfig.
	SecretRef LocalReference `json:"secretRef"`
	// CertificateTemplate customizes the client certificate.
	//
	// +optional
	CertificateTemplate *CertificateTemplate `json:"certificateTemplate,omitempty"`
	// Authorization defines what the user may do.
	//
	// +optional
	Authorization *KubeconfigAuthorization `json:"authorization,omitempty"`
}

// KubeconfigTarget is the server that a kubeconfig points at.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="target is immutable, because the roles are bound there: create another Kubeconfig"
// +kubebuilder:validation:XValidation:rule="[has(self.rootShardRef), has(self.shardRef), has(self.frontProxyRef)].filter(set, set).size() == 1",message="a kubeconfig has one target: set exactly one of rootShardRef, shardRef and frontProxyRef"
type KubeconfigTarget struct {
	// RootShardRef names a RootShard.
	//
	// +optional
	RootShardRef *LocalReference `json:"rootShardRef,omitempty"`
	// ShardRef names a Shard.
	//
	// +optional
	ShardRef *LocalReference `json:"shardRef,omitempty"`
	// FrontProxyRef names a FrontProxy.
	//
	// +optional
	FrontProxyRef *LocalReference `json:"frontProxyRef,omitempty"`
}

// KubeconfigAuthorization defines what a user may do.
type KubeconfigAuthorization struct {
	// ClusterRoleBindings lists the roles of the user.
	ClusterRoleBindings KubeconfigClusterRoleBindings `json:"clusterRoleBindings"`
}

// KubeconfigClusterRoleBindings lists the roles of a user.
type KubeconfigClusterRoleBindings struct {
	// Cluster is the workspace in which the roles are bound. Deprecated: use spec.targetWorkspace.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-a-z0-9]*(:[-a-z0-9]+)*$')",message="a workspace is a path of names with colons between them, such as root:team:project, or the name of its logical cluster"
	Cluster string `json:"cluster,omitempty"`
	// ClusterRoles are the names of the ClusterRoles to bind.
	//
	// +listType=set
	ClusterRoles []string `json:"clusterRoles"`
}

// KubeconfigStatus is the observed state of a Kubeconfig.
type KubeconfigStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase summarizes the conditions.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// TargetName is <kind>/<name> of the target.
	//
	// +optional
	TargetName string `json:"targetName,omitempty"`
	// Authorization is the access that exists in kcp.
	//
	// +optional
	Authorization *KubeconfigAuthorizationStatus `json:"authorization,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Available, CertificatesReady, CertificatesExpiring and ReferenceValid.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Certificates of the user, and when they expire.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// Renewed is the value of the annotation operator.kcp.io/renew with which the certificate was last renewed.
	//
	// +optional
	Renewed string `json:"renewed,omitempty"`
}

// KubeconfigAuthorizationStatus is the access that exists in kcp.
type KubeconfigAuthorizationStatus struct {
	// ProvisionedCluster is the workspace in which roles are bound.
	//
	// +optional
	ProvisionedCluster string `json:"provisionedCluster,omitempty"`
}

// KubeconfigList is a list of Kubeconfigs.
//
// +kubebuilder:object:root=true
type KubeconfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Kubeconfig `json:"items"`
}
