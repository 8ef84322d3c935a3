package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations of an APIExport.
const (
	// SkipEndpointSliceAnnotation prevents the creation of an APIExportEndpointSlice for the export.
	SkipEndpointSliceAnnotation = "apiexports.apis.kcp.io/skip-endpointslice"
	// ExtraAnnotationPrefix is the prefix of annotations that the server copies to all bindings and keeps up to date.
	ExtraAnnotationPrefix = "extra.apis.kcp.io/"
)

// The default secret of the identity of an export.
const (
	// IdentitySecretNamespace is the namespace of the secret; its name is that of the export.
	IdentitySecretNamespace = "kcp-system"
	// IdentitySecretKey is the key of the secret's data. The identity hash is its SHA-256 in hexadecimal digits.
	IdentitySecretKey = "key"
)

// Types of the conditions of an APIExport, and their reasons if they are False.
const (
	APIExportIdentityValid             = "IdentityValid"
	APIExportVirtualWorkspaceURLsReady = "VirtualWorkspaceURLsReady"

	ReasonIdentityGenerationFailed   = "IdentityGenerationFailed"
	ReasonIdentityVerificationFailed = "IdentityVerificationFailed"
	ReasonErrorGeneratingURLs        = "ErrorGeneratingURLs"
)

// APIExport offers resources to other workspaces, which bind it with an APIBinding.
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

// APIExportSpec is the desired state of an export.
type APIExportSpec struct {
	// Resources that the export offers.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=group
	Resources []ResourceSchema `json:"resources,omitempty"`
	// Identity distinguishes this export from others with the same resources. By default the server creates it.
	//
	// +optional
	Identity *Identity `json:"identity,omitempty"`
	// MaximalPermissionPolicy limits access to the bound resources, in addition to RBAC in the consumers' workspaces.
	//
	// +optional
	MaximalPermissionPolicy *MaximalPermissionPolicy `json:"maximalPermissionPolicy,omitempty"`
	// PermissionClaims request access to other resources in the workspaces that bind the export. Each workspace accepts or rejects
	// them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// ResourceSchema is a resource with its schema and storage.
type ResourceSchema struct {
	// Name is the plural name of the resource.
	//
	// +required
	Name string `json:"name"`
	// Group of the resource. The empty string is the core group.
	//
	// +required
	Group string `json:"group"`
	// Schema is the name of the APIResourceSchema in the workspace of the export.
	//
	// +required
	Schema string `json:"schema"`
	// Storage of the objects of the resource.
	//
	// +optional
	// +kubebuilder:default:={crd:{}}
	Storage ResourceSchemaStorage `json:"storage,omitempty,omitzero"`
}

// ResourceSchemaStorage is the storage of the objects of a resource. Defaults to crd.
//
// +kubebuilder:validation:XValidation:rule="!has(self.crd) || !has(self.virtual)",message="crd and virtual cannot both be set"
type ResourceSchemaStorage struct {
	// CRD stores objects in the workspace of the binding, like custom resources.
	//
	// +optional
	CRD *ResourceSchemaStorageCRD `json:"crd,omitempty"`
	// Virtual serves objects of the provider, read-only, in every workspace that binds the export.
	//
	// +optional
	Virtual *ResourceSchemaStorageVirtual `json:"virtual,omitempty"`
}

// ResourceSchemaStorageCRD has no settings.
type ResourceSchemaStorageCRD struct{}

// ResourceSchemaStorageVirtual is the source of virtual objects.
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

// Identity distinguishes an export from others.
type Identity struct {
	// SecretRef refers to the secret of the identity. Exports with the same secret have the same identity, so keep it confidential.
	// Defaults to the secret with the name of the export in the namespace kcp-system.
	//
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// MaximalPermissionPolicy is the source of limits for access to bound resources.
type MaximalPermissionPolicy struct {
	// Local uses RBAC in the workspace of the export as the limit.
	//
	// +required
	Local *LocalAPIExportPolicy `json:"local,omitempty"`
}

// LocalAPIExportPolicy has no settings.
type LocalAPIExportPolicy struct{}

// GroupResource refers to a resource.
type GroupResource struct {
	// Group of the resource. The empty string is the core group.
	//
	// +optional
	// +kubebuilder:default:=""
	// +kubebuilder:validation:Pattern:=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group"`
	// Resource is the plural name of the resource.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// PermissionClaim requests access to a resource in the workspaces that bind the export.
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// Verbs to claim. "*" means all verbs.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems:=1
	Verbs []string `json:"verbs"`
	// IdentityHash of the export of the resource. Empty for built-in resources.
	//
	// +optional
	// +kubebuilder:default:=""
	IdentityHash string `json:"identityHash"`
	// DefaultSelector is the selector of default bindings. Other bindings can use another selector.
	//
	// +optional
	// +structType=atomic
	DefaultSelector *PermissionClaimSelector `json:"defaultSelector,omitempty"`
}

// PermissionClaimSelector selects all objects or objects by their labels.
type PermissionClaimSelector struct {
	metav1.LabelSelector `json:",inline"`

	// MatchAll selects all objects. Mutually exclusive with the other fields.
	//
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
}

// APIExportStatus is the observed state of an export.
type APIExportStatus struct {
	// IdentityHash is the hash of the identity. Immutable.
	//
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
	// Conditions of the export.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// VirtualWorkspaces are the URLs for the provider's controllers. Deprecated: use the APIExportEndpointSlices of the export.
	//
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace is the endpoint of a virtual workspace.
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
