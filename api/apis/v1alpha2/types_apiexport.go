package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations of an APIExport.
const (
	// SkipEndpointSliceAnnotation keeps the system from making an APIExportEndpointSlice for the export.
	SkipEndpointSliceAnnotation = "apiexports.apis.kcp.io/skip-endpointslice"
	// ExtraAnnotationPrefix begins the annotations that every binding gets a copy of, and keeps up to date.
	ExtraAnnotationPrefix = "extra.apis.kcp.io/"
)

// Where the secret is that makes the identity of an export, unless the export says otherwise.
const (
	// IdentitySecretNamespace is the namespace of the secret; its name is that of the export.
	IdentitySecretNamespace = "kcp-system"
	// IdentitySecretKey is the key of the secret's data. The identity hash is its SHA-256 in hexadecimal digits.
	IdentitySecretKey = "key"
)

// Types of the conditions of an APIExport, and their reasons when they are False.
const (
	APIExportIdentityValid             = "IdentityValid"
	APIExportVirtualWorkspaceURLsReady = "VirtualWorkspaceURLsReady"

	ReasonIdentityGenerationFailed   = "IdentityGenerationFailed"
	ReasonIdentityVerificationFailed = "IdentityVerificationFailed"
	ReasonErrorGeneratingURLs        = "ErrorGeneratingURLs"
)

// APIExport offers resources of its workspace to other workspaces, which use them through APIBindings.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec APIExportSpec `json:"spec,omitempty"`
	// +optional
	Status APIExportStatus `json:"status,omitempty"`
}

// APIExportSpec is what is offered.
type APIExportSpec struct {
	// Resources that bindings get.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=group
	Resources []ResourceSchema `json:"resources,omitempty"`
	// Identity tells this export from others that offer the same resources. By default it is made by the system.
	//
	// +optional
	Identity *Identity `json:"identity,omitempty"`
	// MaximalPermissionPolicy limits what users of the bound resources can do, whatever their workspaces allow.
	//
	// +optional
	MaximalPermissionPolicy *MaximalPermissionPolicy `json:"maximalPermissionPolicy,omitempty"`
	// PermissionClaims ask for access to other resources in the workspaces that bind. It is up to these to accept them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// ResourceSchema is a resource, and how it is defined and stored.
type ResourceSchema struct {
	// Name of the resource, in the plural.
	//
	// +required
	Name string `json:"name"`
	// Group of the resource. Empty is the core group.
	//
	// +required
	Group string `json:"group"`
	// Schema is the name of the APIResourceSchema in the workspace of the export.
	//
	// +required
	Schema string `json:"schema"`
	// Storage is where objects of the resource come from.
	//
	// +optional
	// +kubebuilder:default:={crd:{}}
	Storage ResourceSchemaStorage `json:"storage,omitempty,omitzero"`
}

// ResourceSchemaStorage is where objects of a resource come from. Without either field it is the same as crd.
//
// +kubebuilder:validation:XValidation:rule="!has(self.crd) || !has(self.virtual)",message="crd and virtual cannot both be set"
type ResourceSchemaStorage struct {
	// CRD stores objects in the workspace of the binding, like those of a CustomResourceDefinition.
	//
	// +optional
	CRD *ResourceSchemaStorageCRD `json:"crd,omitempty"`
	// Virtual shows objects of the provider in every workspace that binds.
	//
	// +optional
	Virtual *ResourceSchemaStorageVirtual `json:"virtual,omitempty"`
}

// ResourceSchemaStorageCRD has no settings.
type ResourceSchemaStorageCRD struct{}

// ResourceSchemaStorageVirtual names the source of virtual objects.
type ResourceSchemaStorageVirtual struct {
	// Reference to an object in the workspace of the export that has the URLs of the source, such as a
	// ClusterCachedResourceEndpointSlice.
	//
	// +required
	Reference corev1.TypedLocalObjectReference `json:"reference"`
	// IdentityHash of the source.
	//
	// +required
	IdentityHash string `json:"identityHash"`
}

// Identity is what tells an export from others.
type Identity struct {
	// SecretRef names the secret that whoever has can offer the same resources under the same identity. By default it is
	// in the namespace kcp-system and has the name of the export.
	//
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// MaximalPermissionPolicy says where the limits of access to bound resources are.
type MaximalPermissionPolicy struct {
	// Local makes the RBAC rules of the export's workspace the limits.
	//
	// +required
	Local *LocalAPIExportPolicy `json:"local,omitempty"`
}

// LocalAPIExportPolicy has no settings.
type LocalAPIExportPolicy struct{}

// GroupResource names a resource.
type GroupResource struct {
	// Group of the resource. Empty is the core group.
	//
	// +optional
	// +kubebuilder:default:=""
	// +kubebuilder:validation:Pattern:=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group"`
	// Resource in the plural.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// PermissionClaim asks for access to a resource in the workspaces that bind.
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// Verbs that are asked for. "*" is all.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems:=1
	Verbs []string `json:"verbs"`
	// IdentityHash of the export that offers the resource. Empty for resources that every workspace has.
	//
	// +optional
	// +kubebuilder:default:=""
	IdentityHash string `json:"identityHash"`
	// DefaultSelector is what bindings that the system makes accept. Others need not repeat it.
	//
	// +optional
	// +structType=atomic
	DefaultSelector *PermissionClaimSelector `json:"defaultSelector,omitempty"`
}

// PermissionClaimSelector selects objects: all of them, or those with certain labels.
type PermissionClaimSelector struct {
	metav1.LabelSelector `json:",inline"`

	// MatchAll selects every object. It excludes the other fields.
	//
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
}

// APIExportStatus is the observed state of an export.
type APIExportStatus struct {
	// IdentityHash is the public part of the identity. It never changes.
	//
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// VirtualWorkspaces are where the provider sees the objects of all workspaces that bind. Deprecated: read the
	// APIExportEndpointSlices of the export.
	//
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace is the address of a view of many workspaces.
type VirtualWorkspace struct {
	// URL for Kubernetes clients.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	URL string `json:"url"`
}

// APIExportList is a list of APIExports.
//
// +kubebuilder:object:root=true
type APIExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIExport `json:"items"`
}
