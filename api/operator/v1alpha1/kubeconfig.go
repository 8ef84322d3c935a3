package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Kubeconfig is access to a workspace for somebody: a client certificate, and roles in the workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=kconf
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.targetName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 200",message="the name of a Kubeconfig becomes part of that of a Certificate: at most 200 characters"
type Kubeconfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubeconfigSpec `json:"spec"`
	// +optional
	Status KubeconfigStatus `json:"status,omitempty"`
}

// KubeconfigSpec says who gets access to what.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.targetWorkspace) && has(self.authorization) && has(self.authorization.clusterRoleBindings.cluster))",message="targetWorkspace says where the roles are bound: remove authorization.clusterRoleBindings.cluster, which is deprecated"
type KubeconfigSpec struct {
	// Target is what the kubeconfig points at.
	Target KubeconfigTarget `json:"target"`
	// TargetWorkspace is the path of the workspace that the kubeconfig points at, and that the roles are bound in.
	// Unset: root.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="a workspace is a path of names with colons between them, such as root:team:project"
	TargetWorkspace string `json:"targetWorkspace,omitempty"`
	// Username that the certificate is made out to.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.size() <= 64",message="a certificate has room for a username of 64 characters"
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username"`
	// Groups of the user. The operator adds one that belongs to this object alone, which the roles are bound to.
	//
	// +optional
	// +listType=set
	Groups []string `json:"groups,omitempty"`
	// Validity of the certificate. It is renewed when a third of this is left.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="cert-manager issues nothing for less than an hour: 1h is the least"
	Validity Duration `json:"validity"`
	// SecretRef names the Secret that the kubeconfig is written into, under the key kubeconfig.
	SecretRef LocalReference `json:"secretRef"`
	// CertificateTemplate changes the client certificate.
	//
	// +optional
	CertificateTemplate *CertificateTemplate `json:"certificateTemplate,omitempty"`
	// Authorization says what the user may do.
	//
	// +optional
	Authorization *KubeconfigAuthorization `json:"authorization,omitempty"`
}

// KubeconfigTarget is what a kubeconfig points at.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a kubeconfig keeps its target, where its roles are bound: make another Kubeconfig"
// +kubebuilder:validation:XValidation:rule="[has(self.rootShardRef), has(self.shardRef), has(self.frontProxyRef)].filter(set, set).size() == 1",message="a kubeconfig points at one thing: set exactly one of rootShardRef, shardRef and frontProxyRef"
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

// KubeconfigAuthorization says what a user may do.
type KubeconfigAuthorization struct {
	// ClusterRoleBindings of the user.
	ClusterRoleBindings KubeconfigClusterRoleBindings `json:"clusterRoleBindings"`
}

// KubeconfigClusterRoleBindings are roles of a user.
type KubeconfigClusterRoleBindings struct {
	// Cluster is the workspace that the roles are bound in. Deprecated: use spec.targetWorkspace.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-a-z0-9]*(:[-a-z0-9]+)*$')",message="a workspace is a path of names with colons between them, such as root:team:project, or the name of its logical cluster"
	Cluster string `json:"cluster,omitempty"`
	// ClusterRoles to bind.
	//
	// +listType=set
	ClusterRoles []string `json:"clusterRoles"`
}

// KubeconfigStatus is what is known of the access.
type KubeconfigStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase sums up the conditions.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// TargetName is <kind>/<name> of the target.
	//
	// +optional
	TargetName string `json:"targetName,omitempty"`
	// Authorization that exists in kcp.
	//
	// +optional
	Authorization *KubeconfigAuthorizationStatus `json:"authorization,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Available, CertificatesReady, CertificatesExpiring and ReferenceValid.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Certificates of the user, and until when they are valid.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// Renewed is the value of the annotation operator.kcp.io/renew for which the certificate was last renewed.
	//
	// +optional
	Renewed string `json:"renewed,omitempty"`
}

// KubeconfigAuthorizationStatus is what exists in kcp.
type KubeconfigAuthorizationStatus struct {
	// ProvisionedCluster is the workspace that roles are bound in.
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
