package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations, labels and finalizers of an APIBinding.
const (
	// APIBindingFinalizer keeps an APIBinding until the objects of its resources are deleted.
	APIBindingFinalizer = "apis.kcp.io/apibinding-finalizer"
	// ExportLabel of an APIBinding is the hash of the logical cluster and name of its export.
	ExportLabel = "internal.apis.kcp.io/export"
	// DefaultAPIBindingLifecycleAnnotation of a default binding is its lifecycle mode.
	DefaultAPIBindingLifecycleAnnotation = "experimental.tenancy.kcp.io/default-api-binding-lifecycle"
)

// Labels and annotations of objects other than APIBindings.
const (
	// ClaimedLabelPrefix followed by the hash of an export is the label of objects that the export may access. The value is the
	// hash of the claim.
	ClaimedLabelPrefix = "claimed.internal.apis.kcp.io/"
	// ResourceBindingsAnnotation of a LogicalCluster maps each of its resources to a binding or CRD, as JSON.
	ResourceBindingsAnnotation = "internal.apis.kcp.io/resource-bindings"
	// DerivedFromAnnotation of a derived CustomResourceDefinition is the name of the APIBinding.
	DerivedFromAnnotation = "apis.kcp.io/derived-from-binding"
	// BoundCRDAnnotation marks definitions that the server created from an APIResourceSchema.
	BoundCRDAnnotation = "apis.kcp.io/bound-crd"
	// SchemaClusterAnnotation of a bound definition is the logical cluster of its APIResourceSchema.
	SchemaClusterAnnotation = "apis.kcp.io/schema-cluster"
	// SchemaNameAnnotation of a bound definition is the name of its APIResourceSchema.
	SchemaNameAnnotation = "apis.kcp.io/schema-name"
	// UnusedSinceAnnotation of a schema that the server keeps for bindings is the time since when no binding uses it.
	UnusedSinceAnnotation = "internal.apis.kcp.io/unused-since"
	// SchemaStorageAnnotation of a bound definition marks resources with virtual storage, as virtual:<hash>.
	SchemaStorageAnnotation = "apis.kcp.io/schema-storage"
	// IdentityAnnotation of a definition is the identity hash of the export that it comes from.
	IdentityAnnotation = "apis.kcp.io/identity"
)

// Types of the conditions of an APIBinding.
const (
	APIBindingReady                   = "Ready"
	APIBindingExportValid             = "APIExportValid"
	APIBindingInitialBindingCompleted = "InitialBindingCompleted"
	APIBindingUpToDate                = "BindingUpToDate"
	APIBindingResourceDeleteSuccess   = "BindingResourceDeleteSuccess"
	APIBindingPermissionClaimsValid   = "PermissionClaimsValid"
	APIBindingPermissionClaimsApplied = "PermissionClaimsApplied"
)

// Reasons of conditions that are False.
const (
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"
	ReasonAPIExportNotFound         = "APIExportNotFound"
	ReasonInternalError             = "InternalError"
	ReasonMissingIdentityHash       = "MissingIdentityHash"

	ReasonWaitingForEstablished    = "WaitingForEstablished"
	ReasonLogicalClusterNotFound   = "LogicalClusterNotFound"
	ReasonNamingConflicts          = "NamingConflicts"
	ReasonAPIResourceSchemaInvalid = "APIResourceSchemaInvalid"

	ReasonResourceDeletionFailed = "ResourceDeletionFailed"
	ReasonSomeResourcesRemain    = "SomeResourcesRemain"
	ReasonSomeFinalizersRemain   = "SomeFinalizersRemain"

	ReasonInvalidPermissionClaims  = "InvalidPermissionClaims"
	ReasonPermissionClaimsMismatch = "PermissionClaimsMismatch"
)

// APIBinding makes the resources of an APIExport available in its workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type APIBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec APIBindingSpec `json:"spec"`
	// +optional
	Status APIBindingStatus `json:"status,omitempty"`
}

// APIBindingSpec is the desired state of a binding.
type APIBindingSpec struct {
	// Reference to the APIExport.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed: delete the binding and create another"
	Reference BindingReference `json:"reference"`
	// PermissionClaims of the export that the workspace accepts or rejects.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +listMapKey=identityHash
	PermissionClaims []AcceptablePermissionClaim `json:"permissionClaims,omitempty"`
}

// BindingReference refers to what is bound.
type BindingReference struct {
	// Export to bind.
	//
	// +required
	Export *ExportBindingReference `json:"export,omitempty"`
}

// ExportBindingReference refers to an APIExport.
type ExportBindingReference struct {
	// Path of the workspace of the export, or the name of its logical cluster. Defaults to the workspace of the binding.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Name of the export.
	//
	// +required
	Name string `json:"name"`
}

// ScopedPermissionClaim is a permission claim that is limited to selected objects.
type ScopedPermissionClaim struct {
	PermissionClaim `json:",inline"`

	// Selector of the objects.
	//
	// +required
	// +structType=atomic
	Selector PermissionClaimSelector `json:"selector"`
}

// AcceptablePermissionClaimState is the state of a permission claim.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type AcceptablePermissionClaimState string

// States of permission claims.
const (
	ClaimAccepted AcceptablePermissionClaimState = "Accepted"
	ClaimRejected AcceptablePermissionClaimState = "Rejected"
)

// AcceptablePermissionClaim is a permission claim that is accepted or rejected.
type AcceptablePermissionClaim struct {
	ScopedPermissionClaim `json:",inline"`

	// State is Accepted or Rejected.
	//
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// APIBindingPhase is the phase of a binding.
//
// +kubebuilder:validation:Enum="";Binding;Bound
type APIBindingPhase string

// Phases in their order. Bound is final.
const (
	APIBindingPhaseNew     APIBindingPhase = ""
	APIBindingPhaseBinding APIBindingPhase = "Binding"
	APIBindingPhaseBound   APIBindingPhase = "Bound"
)

// APIBindingStatus is the observed state of a binding.
type APIBindingStatus struct {
	// APIExportClusterName is the name of the logical cluster of the export.
	//
	// +optional
	APIExportClusterName string `json:"apiExportClusterName,omitempty"`
	// BoundResources are the resources that the binding makes available.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	BoundResources []BoundAPIResource `json:"boundResources,omitempty"`
	// Phase of the binding.
	//
	// +optional
	Phase APIBindingPhase `json:"phase,omitempty"`
	// Conditions of the binding.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// AppliedPermissionClaims are the accepted permission claims that are in effect.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +listMapKey=identityHash
	AppliedPermissionClaims []ScopedPermissionClaim `json:"appliedPermissionClaims,omitempty"`
	// ExportPermissionClaims are the permission claims of the export.
	//
	// +optional
	ExportPermissionClaims []PermissionClaim `json:"exportPermissionClaims,omitempty"`
}

// BoundAPIResource is a resource that a binding makes available.
type BoundAPIResource struct {
	// Group of the resource. The empty string is the core group.
	//
	// +required
	Group string `json:"group"`
	// Resource is the plural name of the resource.
	//
	// +required
	Resource string `json:"resource"`
	// Schema that defines the resource.
	//
	// +required
	Schema BoundAPIResourceSchema `json:"schema"`
	// StorageVersions are all versions in which objects of the resource have been stored.
	//
	// +optional
	// +listType=set
	StorageVersions []string `json:"storageVersions,omitempty"`
}

// BoundAPIResourceSchema refers to the APIResourceSchema of a bound resource.
type BoundAPIResourceSchema struct {
	// Name of the APIResourceSchema.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	Name string `json:"name"`
	// UID of the APIResourceSchema.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	UID string `json:"UID"`
	// IdentityHash of the export.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	IdentityHash string `json:"identityHash"`
}

// APIBindingList is a list of APIBindings.
//
// +kubebuilder:object:root=true
type APIBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIBinding `json:"items"`
}
