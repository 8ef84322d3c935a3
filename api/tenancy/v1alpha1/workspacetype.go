package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of a WorkspaceType, and the reason if the first one is False.
const (
	VirtualWorkspaceURLsReady = "VirtualWorkspaceURLsReady"
	Ready                     = "Ready"
	ErrorGeneratingURLs       = "ErrorGeneratingURLs"
)

// DerivedDefinitionsAnnotation of a WorkspaceType is "true" if workspaces of the type, and of types that extend it, serve a
// derived CustomResourceDefinition for each bound API.
const DerivedDefinitionsAnnotation = "tenancy.kcp.io/derived-definitions"

// WorkspaceTypeReference refers to a type.
type WorkspaceTypeReference struct {
	// Name of the WorkspaceType.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Path of the workspace of the type. If empty, the server looks up the name in the workspace and its ancestors.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
}

// String returns <path>:<name>, or only the name if the path is empty.
func (r WorkspaceTypeReference) String() string {
	if r.Path == "" {
		return r.Name
	}
	return r.Path + ":" + r.Name
}

// WorkspaceType defines the initial content of workspaces of the type, and their allowed parents and children.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')",message="the name of a type has 1 to 63 lower case letters, digits and dashes, and begins and ends with a letter or digit"
type WorkspaceType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WorkspaceTypeSpec `json:"spec,omitempty"`
	// +optional
	Status WorkspaceTypeStatus `json:"status,omitempty"`
}

// APIBindingLifecycleMode defines how long the server manages default bindings.
//
// +kubebuilder:validation:Enum=InitializeOnly;Maintain
type APIBindingLifecycleMode string

// The modes. The empty one is InitializeOnly.
const (
	APIBindingLifecycleModeInitializeOnly APIBindingLifecycleMode = "InitializeOnly"
	APIBindingLifecycleModeMaintain       APIBindingLifecycleMode = "Maintain"
)

// WorkspaceTypeSpec is the desired state of a type.
type WorkspaceTypeSpec struct {
	// Initializer keeps new workspaces from becoming ready until the initializer <logical cluster>:<name of the type> is removed.
	//
	// +optional
	Initializer bool `json:"initializer,omitempty"`
	// Terminator delays the deletion of workspaces until the terminator <logical cluster>:<name of the type> is removed.
	//
	// +optional
	Terminator bool `json:"terminator,omitempty"`
	// Extend adds the initializers, terminators, default bindings and labels of other types and the types they extend.
	//
	// +optional
	Extend WorkspaceTypeExtension `json:"extend,omitempty"`
	// AdditionalWorkspaceLabels are added to new workspaces. Labels that the workspace already has are kept.
	//
	// +optional
	AdditionalWorkspaceLabels map[string]string `json:"additionalWorkspaceLabels,omitempty"`
	// DefaultChildWorkspaceType is the type of child workspaces that do not specify one.
	//
	// +optional
	// +kubebuilder:default:={name:universal,path:root}
	DefaultChildWorkspaceType *WorkspaceTypeReference `json:"defaultChildWorkspaceType,omitempty"`
	// LimitAllowedChildren restricts the types of child workspaces.
	//
	// +optional
	LimitAllowedChildren *WorkspaceTypeSelector `json:"limitAllowedChildren,omitempty"`
	// LimitAllowedParents restricts the type of the parent workspace.
	//
	// +optional
	LimitAllowedParents *WorkspaceTypeSelector `json:"limitAllowedParents,omitempty"`
	// DefaultAPIBindings are the exports that the server binds in new workspaces.
	//
	// +optional
	DefaultAPIBindings []APIExportReference `json:"defaultAPIBindings,omitempty"`
	// DefaultAPIBindingLifecycle is InitializeOnly (the default), or Maintain to update the default bindings when the exports change.
	//
	// +optional
	DefaultAPIBindingLifecycle *APIBindingLifecycleMode `json:"defaultAPIBindingLifecycle,omitempty"`
	// InitializerPermissions of the initializer in a workspace during the initialization. If empty, it acts as the owner of the
	// workspace.
	//
	// +optional
	InitializerPermissions []rbacv1.PolicyRule `json:"initializerPermissions,omitempty"`
	// TerminatorPermissions of the terminator in a workspace during the termination. If empty, it acts as the owner of the
	// workspace.
	//
	// +optional
	TerminatorPermissions []rbacv1.PolicyRule `json:"terminatorPermissions,omitempty"`
	// AuthenticationConfigurations are WorkspaceAuthenticationConfigurations in the workspace of the type. Their users can
	// authenticate in workspaces of the type.
	//
	// +optional
	AuthenticationConfigurations []AuthenticationConfigurationReference `json:"authenticationConfigurations,omitempty"`
}

// WorkspaceTypeExtension lists the types that a type extends.
type WorkspaceTypeExtension struct {
	// With lists the types.
	//
	// +optional
	With []WorkspaceTypeReference `json:"with,omitempty"`
}

// WorkspaceTypeSelector selects no type or a set of types.
//
// +kubebuilder:validation:XValidation:rule="(has(self.none) && self.none) != has(self.types)",message="exactly one of none and types must be set"
type WorkspaceTypeSelector struct {
	// None selects no type.
	//
	// +optional
	None bool `json:"none,omitempty"`
	// Types selects these types, and types that extend them.
	//
	// +optional
	// +kubebuilder:validation:MinItems:=1
	Types []WorkspaceTypeReference `json:"types,omitempty"`
}

// APIExportReference refers to an APIExport.
type APIExportReference struct {
	// Path of the workspace of the APIExport. Defaults to the workspace of the type.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Export is the name of the APIExport.
	//
	// +required
	Export string `json:"export"`
}

// AuthenticationConfigurationReference refers to a WorkspaceAuthenticationConfiguration.
type AuthenticationConfigurationReference struct {
	// Name of the configuration.
	//
	// +required
	Name string `json:"name"`
}

// VirtualWorkspaceType is the purpose of a virtual workspace.
//
// +kubebuilder:validation:Enum=initializing;terminating
type VirtualWorkspaceType string

// The types of virtual workspaces.
const (
	VirtualWorkspaceTypeInitializing VirtualWorkspaceType = "initializing"
	VirtualWorkspaceTypeTerminating  VirtualWorkspaceType = "terminating"
)

// VirtualWorkspace is the endpoint on one shard for the initializer or terminator of a type.
type VirtualWorkspace struct {
	// URL of the virtual workspace.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	URL string `json:"url"`
	// Type of the virtual workspace.
	//
	// +optional
	Type VirtualWorkspaceType `json:"type,omitempty"`
}

// WorkspaceTypeStatus is the observed state of a type.
type WorkspaceTypeStatus struct {
	// Conditions of the type.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// VirtualWorkspaces has two entries for each shard, sorted by the shard's name.
	//
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// WorkspaceTypeList is a list of WorkspaceTypes.
//
// +kubebuilder:object:root=true
type WorkspaceTypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []WorkspaceType `json:"items"`
}
