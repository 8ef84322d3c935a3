package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualWorkspace serves the virtual workspaces of a shard in pods of their own, to keep the load of controllers away from the shard. A
// shard selects it in spec.kcpVirtualWorkspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=kcp,shortName=kvw
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a VirtualWorkspace is part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
type VirtualWorkspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VirtualWorkspaceSpec `json:"spec"`
	// +optional
	Status ComponentStatus `json:"status,omitempty"`
}

// VirtualWorkspaceSpec is the desired state of a server of virtual workspaces.
type VirtualWorkspaceSpec struct {
	ComponentSpec `json:",inline"`

	// Target is the shard whose virtual workspaces are served.
	Target VirtualWorkspaceTarget `json:"target"`
	// External is the address for clients, which the shard publishes in endpoint slices.
	External ExternalConfig `json:"external"`
	// ClusterDomain is the domain of Services. Unset: the one of the shard.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// Command of the container. Unset: kcp virtual-workspaces. Another program gets only the flags for its own certificates, users and
	// kubeconfig, and extraArgs.
	//
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// InitContainers run before the server starts.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	InitContainers []VirtualWorkspaceInitContainer `json:"initContainers,omitempty"`
	// KubeconfigSecretRef names a Secret whose key kubeconfig has the kubeconfig of another program. It requires command: kcp
	// virtual-workspaces reads the etcd of the shard.
	//
	// +optional
	KubeconfigSecretRef *LocalReference `json:"kubeconfigSecretRef,omitempty"`
	// CABundleSecretRef has no effect: the server trusts the CAs that the shard trusts.
	//
	// +optional
	CABundleSecretRef *LocalReference `json:"caBundleSecretRef,omitempty"`
	// ClientCABundleRef names a Secret whose tls.crt has additional CAs to trust for client certificates.
	//
	// +optional
	ClientCABundleRef *LocalReference `json:"clientCABundleRef,omitempty"`
	// CertificateTemplates customize certificates of the server, by name.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['server', 'client'])",message="a VirtualWorkspace has no such certificate; it has server and client"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
}

// VirtualWorkspaceTarget is the shard whose virtual workspaces are served.
//
// +kubebuilder:validation:XValidation:rule="has(self.rootShardRef) != has(self.shardRef)",message="virtual workspaces are those of one shard: set either rootShardRef or shardRef"
type VirtualWorkspaceTarget struct {
	// RootShardRef names a RootShard.
	//
	// +optional
	RootShardRef *LocalReference `json:"rootShardRef,omitempty"`
	// ShardRef names a Shard.
	//
	// +optional
	ShardRef *LocalReference `json:"shardRef,omitempty"`
}

// VirtualWorkspaceInitContainer is a container that runs before the server starts.
type VirtualWorkspaceInitContainer struct {
	// Name of the container.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Image of the container. Unset: that of the server.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Command of the container.
	//
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args of the command.
	//
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// KubeconfigSecretRef names a Secret whose key kubeconfig is mounted at /etc/kcp/init-kubeconfig/kubeconfig.
	//
	// +optional
	KubeconfigSecretRef *LocalReference `json:"kubeconfigSecretRef,omitempty"`
	// Resources of the container. They override the defaults of the server.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ExtraVolumes are added to the pods. A volume with the name of another one is not added again.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumes []corev1.Volume `json:"volumes,omitempty"`
	// ExtraVolumeMounts are added to the container.
	//
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	ExtraVolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// VirtualWorkspaceList is a list of VirtualWorkspaces.
//
// +kubebuilder:object:root=true
type VirtualWorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VirtualWorkspace `json:"items"`
}
