package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// APIBinding makes the resources of an APIExport available in its workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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
	Reference apisv1alpha2.BindingReference `json:"reference"`
	// PermissionClaims of the export that the workspace accepts or rejects.
	//
	// +optional
	PermissionClaims []AcceptablePermissionClaim `json:"permissionClaims,omitempty"`
}

// AcceptablePermissionClaim is a permission claim that is accepted or rejected.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// State is Accepted or Rejected.
	//
	// +required
	State apisv1alpha2.AcceptablePermissionClaimState `json:"state"`
}

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
	BoundResources []apisv1alpha2.BoundAPIResource `json:"boundResources,omitempty"`
	// Phase of the binding.
	//
	// +optional
	Phase apisv1alpha2.APIBindingPhase `json:"phase,omitempty"`
	// Conditions of the binding.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// AppliedPermissionClaims are the accepted permission claims that are in effect.
	//
	// +optional
	AppliedPermissionClaims []PermissionClaim `json:"appliedPermissionClaims,omitempty"`
	// ExportPermissionClaims are the permission claims of the export.
	//
	// +optional
	ExportPermissionClaims []PermissionClaim `json:"exportPermissionClaims,omitempty"`
}

// APIBindingList is a list of APIBindings.
//
// +kubebuilder:object:root=true
type APIBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIBinding `json:"items"`
}
