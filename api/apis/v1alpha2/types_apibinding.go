package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations, labels and finalizers of an APIBinding.
const (
	// APIBindingFinalizer holds an APIBinding until the objects of what it binds are deleted.
	APIBindingFinalizer = "apis.kcp.io/apibinding-finalizer"
	// ExportLabel of an APIBinding is the hash of the logical cluster and name of its export.
	ExportLabel = "internal.apis.kcp.io/export"
	// DefaultAPIBindingLifecycleAnnotation of a binding that the system made is the mode that it was made with.
	DefaultAPIBindingLifecycleAnnotation = "experimental.tenancy.kcp.io/default-api-binding-lifecycle"
)

// Marks that bindings leave on other objects.
const (
	// ClaimedLabelPrefix and the hash of an export are the label of objects that the export may access. The value is the
	// hash of the claim.
	ClaimedLabelPrefix = "claimed.internal.apis.kcp.io/"
	// ResourceBindingsAnnotation of a LogicalCluster says by JSON to which binding or CRD each of its resources belongs.
	ResourceBindingsAnnotation = "internal.apis.kcp.io/resource-bindings"
	// DerivedFromAnnotation of a CustomResourceDefinition that is derived, and not stored, is the name of the APIBinding.
	DerivedFromAnnotation = "apis.kcp.io/derived-from-binding"
	// BoundCRDAnnotation is on definitions that were made from an APIResourceSchema.
	BoundCRDAnnotation = "apis.kcp.io/bound-crd"
	// SchemaClusterAnnotation of a bound definition is the logical cluster of its APIResourceSchema.
	SchemaClusterAnnotation = "apis.kcp.io/schema-cluster"
	// SchemaNameAnnotation of a bound definition is the name of its APIResourceSchema.
	SchemaNameAnnotation = "apis.kcp.io/schema-name"
	// UnusedSinceAnnotation of a schema that is kept for bindings tells since when there is none.
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

// APIBinding brings the resources of an APIExport into its workspace.
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

// APIBindingSpec is what is bound, and what its provider may do in return.
type APIBindingSpec struct {
	// Reference to what is bound.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed: delete the binding and create another"
	Reference BindingReference `json:"reference"`
	// PermissionClaims of the export that are accepted or rejected.
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
	// Export that is bound.
	//
	// +required
	Export *ExportBindingReference `json:"export,omitempty"`
}

// ExportBindingReference refers to an APIExport.
type ExportBindingReference struct {
	// Path of the workspace of the export, or the name of its logical cluster. Empty is the workspace of the binding.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Name of the export.
	//
	// +required
	Name string `json:"name"`
}

// ScopedPermissionClaim is a claim on some of the objects of a resource.
type ScopedPermissionClaim struct {
	PermissionClaim `json:",inline"`

	// Selector of the objects.
	//
	// +required
	// +structType=atomic
	Selector PermissionClaimSelector `json:"selector"`
}

// AcceptablePermissionClaimState is the answer to a claim.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type AcceptablePermissionClaimState string

// The answers.
const (
	ClaimAccepted AcceptablePermissionClaimState = "Accepted"
	ClaimRejected AcceptablePermissionClaimState = "Rejected"
)

// AcceptablePermissionClaim is a claim and the answer to it.
type AcceptablePermissionClaim struct {
	ScopedPermissionClaim `json:",inline"`

	// State is Accepted or Rejected.
	//
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// APIBindingPhase is a step in the life of a binding.
//
// +kubebuilder:validation:Enum="";Binding;Bound
type APIBindingPhase string

// The phases, in their order. A binding that is Bound stays so.
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
	// BoundResources are those that the workspace has from the binding.
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
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// AppliedPermissionClaims are in effect.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +listMapKey=identityHash
	AppliedPermissionClaims []ScopedPermissionClaim `json:"appliedPermissionClaims,omitempty"`
	// ExportPermissionClaims are those of the export.
	//
	// +optional
	ExportPermissionClaims []PermissionClaim `json:"exportPermissionClaims,omitempty"`
}

// BoundAPIResource is a resource that the workspace has from a binding.
type BoundAPIResource struct {
	// Group of the resource. Empty is the core group.
	//
	// +required
	Group string `json:"group"`
	// Resource in the plural.
	//
	// +required
	Resource string `json:"resource"`
	// Schema that defines the resource.
	//
	// +required
	Schema BoundAPIResourceSchema `json:"schema"`
	// StorageVersions are those in which objects of the resource were stored.
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
