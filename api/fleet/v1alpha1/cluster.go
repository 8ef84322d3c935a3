package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ClusterLabel is the label with the name of the Cluster of an Assignment, and of all that an agent creates on its cluster.
	ClusterLabel = "fleet.kcp.io/cluster"
	// ClusterReady is the condition of a Cluster whose agent renews its Lease.
	ClusterReady = "Ready"
)

// Cluster is a Kubernetes cluster that runs objects of workspaces. Its agent connects to the fleet; nothing connects to the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordon`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is the desired state of a cluster.
type ClusterSpec struct {
	// Cordon keeps new assignments away from the cluster. What it runs stays.
	//
	// +optional
	Cordon bool `json:"cordon,omitempty"`
	// Drain keeps new assignments away and moves existing ones to other clusters. A copy stays until its replacement is ready.
	//
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Taints keep placements away that do not tolerate them. NoSchedule affects new assignments, NoExecute also existing ones.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=20
	Taints []Taint `json:"taints,omitempty"`
	// PodSecurity is the level of the Pod Security Standards in the namespaces of workspaces on the cluster. Defaults to restricted.
	//
	// +optional
	// +kubebuilder:validation:Enum=restricted;baseline;privileged
	// +kubebuilder:default:=restricted
	PodSecurity string `json:"podSecurity,omitempty"`
	// Quota is the ResourceQuota of each namespace on the cluster. Defaults to 100 pods and 100 PersistentVolumeClaims.
	//
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// ApprovedKey is the SHA-256 fingerprint of the public key to which the fleet issues the first certificate of the agent, as in
	// status.requestedKey. Further certificates are issued to the holder of a valid one. If it changes or is removed, this certificate and
	// those that were issued to its holder are refused.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[0-9a-f]{64}$`
	ApprovedKey string `json:"approvedKey,omitempty"`
}

// Taint keeps placements away from a cluster.
type Taint struct {
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=317
	Key string `json:"key"`
	// +optional
	// +kubebuilder:validation:MaxLength:=63
	Value string `json:"value,omitempty"`
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// ClusterStatus is the observed state of a cluster.
type ClusterStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Version is the version of Kubernetes.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Capacity is the sum of what the nodes of the cluster can allocate to pods.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties:=64
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Requested is the sum of what the pods on the nodes of the cluster request. The agent reports it once in a minute.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties:=64
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// Resources are the exported resources, with whether the cluster accepts all objects that workspaces may have of them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems:=500
	Resources []ClusterResource `json:"resources,omitempty"`
	// Request is a certificate signing request of the agent, in PEM.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=16384
	Request string `json:"request,omitempty"`
	// RequestedKey is the SHA-256 fingerprint of the public key of the request. The fleet writes it.
	//
	// +optional
	RequestedKey string `json:"requestedKey,omitempty"`
	// Certificate is the certificate of the agent that the fleet has issued, in PEM.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=65536
	Certificate string `json:"certificate,omitempty"`
}

// ResourceState says whether a cluster accepts the objects of a resource.
//
// +kubebuilder:validation:Enum=Accepted;Incompatible
type ResourceState string

// States of a resource on a cluster.
const (
	// ResourceAccepted is the state if each object that is valid in workspaces is valid on the cluster, and means the same there.
	ResourceAccepted ResourceState = "Accepted"
	// ResourceIncompatible is the state if some are not. Namespaces with objects of the resource do not run on the cluster.
	ResourceIncompatible ResourceState = "Incompatible"
)

// ClusterResource compares the exported schema of a resource with that of a cluster.
type ClusterResource struct {
	// Group of the resource; empty for the core group.
	//
	// +optional
	// +kubebuilder:default:=""
	// +kubebuilder:validation:MaxLength:=253
	Group string `json:"group"`
	// Resource is the plural name.
	//
	// +required
	// +kubebuilder:validation:MaxLength:=63
	Resource string `json:"resource"`
	// Schema is the name of the APIResourceSchema.
	//
	// +required
	// +kubebuilder:validation:MaxLength:=317
	Schema string `json:"schema"`
	// +required
	State ResourceState `json:"state"`
	// Field is the path of the first difference in objects, or empty if it is not about a field.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=512
	Field string `json:"field,omitempty"`
	// Message describes the first difference.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=1024
	Message string `json:"message,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Cluster `json:"items"`
}
