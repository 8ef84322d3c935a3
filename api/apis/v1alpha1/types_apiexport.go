package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// APIExport offers resources to other workspaces, which bind it with an APIBinding.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="VirtualWorkspaceURLsReady")].status`
type APIExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec APIExportSpec `json:"spec,omitempty"`
	// +optional
	Status apisv1alpha2.APIExportStatus `json:"status,omitempty"`
}

// APIExportSpec is the desired state of an export.
type APIExportSpec struct {
	// LatestResourceSchemas are the names of the APIResourceSchemas that the export offers.
	//
	// +optional
	// +listType=set
	LatestResourceSchemas []string `json:"latestResourceSchemas,omitempty"`
	// Identity distinguishes this export from others with the same resources. By default the server creates it.
	//
	// +optional
	Identity *apisv1alpha2.Identity `json:"identity,omitempty"`
	// MaximalPermissionPolicy limits access to the bound resources, in addition to RBAC in the consumers' workspaces.
	//
	// +optional
	MaximalPermissionPolicy *apisv1alpha2.MaximalPermissionPolicy `json:"maximalPermissionPolicy,omitempty"`
	// PermissionClaims request access to other resources in the workspaces that bind the export. Each workspace accepts or rejects
	// them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// PermissionClaim requests access to a resource in the workspaces that bind the export.
//
// +kubebuilder:validation:XValidation:rule="(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",message="either all or resourceSelector must be set"
type PermissionClaim struct {
	apisv1alpha2.GroupResource `json:",inline"`

	// All claims all objects. Mutually exclusive with resourceSelector.
	//
	// +optional
	All bool `json:"all,omitempty"`
	// ResourceSelector claims the selected objects.
	//
	// +optional
	ResourceSelector []ResourceSelector `json:"resourceSelector,omitempty"`
	// IdentityHash of the export of the resource. Empty for built-in resources.
	//
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
}

// ResourceSelector selects objects by name and namespace.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) || has(self.__namespace__)",message="at least one of name and namespace must be set"
type ResourceSelector struct {
	// Name of an object.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	// +kubebuilder:validation:Pattern:=`^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$`
	Name string `json:"name,omitempty"`
	// Namespace of the objects.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Namespace string `json:"namespace,omitempty"`
}

// APIExportList is a list of APIExports.
//
// +kubebuilder:object:root=true
type APIExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIExport `json:"items"`
}
