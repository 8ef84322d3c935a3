package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheServer has what the shards of one installation must know of each other. Shards fill an empty one: it needs no backup. A RootShard
// selects it in spec.cache.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=kcp,shortName=kcache
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.status.rootShard`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a CacheServer is part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
type CacheServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CacheServerSpec `json:"spec,omitempty"`
	// +optional
	Status CacheServerStatus `json:"status,omitempty"`
}

// CacheServerSpec is the desired state of a cache server.
//
// +kubebuilder:validation:XValidation:rule="has(self.etcd) || !has(self.replicas) || self.replicas <= 1",message="more than one pod requires etcd: the embedded etcd has only one member",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="has(self.etcd) || !has(self.autoscaling)",message="autoscaling requires etcd: the embedded etcd has only one member",fieldPath=".autoscaling"
// +kubebuilder:validation:XValidation:rule="has(self.etcd) || !has(oldSelf.etcd)",message="etcd cannot be removed: create another CacheServer",fieldPath=".etcd"
type CacheServerSpec struct {
	ComponentSpec `json:",inline"`

	// ClusterDomain is the domain of Services. Unset: cluster.local.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// Certificates selects the issuer of certificates. Unset: a self-signed CA that the operator creates. It is independent of the CA of the
	// installation.
	//
	// +optional
	Certificates *Certificates `json:"certificates,omitempty"`
	// CertificateTemplates customize certificates of the cache server, by name. The template client is for the certificates of all shards.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['root-ca', 'server', 'client'])",message="a CacheServer has no such certificate; it has root-ca, server and client"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
	// Etcd selects the etcd that stores the objects. Unset: an etcd in the pod, which is empty after a restart, and which the shards fill
	// again.
	//
	// +optional
	Etcd *EtcdConfig `json:"etcd,omitempty"`
}

// CacheServerStatus is the observed state of a cache server.
type CacheServerStatus struct {
	ComponentStatus `json:",inline"`

	// RootShard is the name of the RootShard whose shards use the cache server.
	//
	// +optional
	RootShard string `json:"rootShard,omitempty"`
}

// CacheServerList is a list of CacheServers.
//
// +kubebuilder:object:root=true
type CacheServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CacheServer `json:"items"`
}
