package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of a WorkspaceType, and the reason of the first when it is False.
const (
	VirtualWorkspaceURLsReady = "VirtualWorkspaceURLsReady"
	Ready                     = "Ready"
	ErrorGeneratingURLs       = "ErrorGeneratingURLs"
)

// DerivedDefinitionsAnnotation of a WorkspaceType is "true" if workspaces of the type, and of types that extend it, show a
// CustomResourceDefinition for each API that they have bound.
const DerivedDefinitionsAnnotation = "tenancy.kcp.io/derived-definitions"

// WorkspaceTypeReference names a type.
type WorkspaceTypeReference struct {
	// Name of the WorkspaceType.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Path of the workspace that the type is in. Empty: the nearest one that has it, from here up to root.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
}

// String is <path>:<name>, or the name alone.
func (r WorkspaceTypeReference) String() string {
	if r.Path == "" {
		return r.Name
	}
	return r.Path + ":" + r.Name
}

// WorkspaceType says what workspaces of the type start with, and where they may be.
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

// APIBindingLifecycleMode says for how long the system keeps default bindings.
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
	// Initializer makes new workspaces wait until the initializer <logical cluster>:<name of the type> is removed.
	//
	// +optional
	Initializer bool `json:"initializer,omitempty"`
	// Terminator makes the deletion of workspaces wait until the terminator <logical cluster>:<name of the type> is removed.
	//
	// +optional
	Terminator bool `json:"terminator,omitempty"`
	// Extend adds the initializers, terminators, default bindings and labels of other types, and of those that they extend.
	//
	// +optional
	Extend WorkspaceTypeExtension `json:"extend,omitempty"`
	// AdditionalWorkspaceLabels are set on new workspaces that do not have them.
	//
	// +optional
	AdditionalWorkspaceLabels map[string]string `json:"additionalWorkspaceLabels,omitempty"`
	// DefaultChildWorkspaceType is the type of workspaces below one of this type that name none.
	//
	// +optional
	// +kubebuilder:default:={name:universal,path:root}
	DefaultChildWorkspaceType *WorkspaceTypeReference `json:"defaultChildWorkspaceType,omitempty"`
	// LimitAllowedChildren restricts the types of workspaces directly below.
	//
	// +optional
	LimitAllowedChildren *WorkspaceTypeSelector `json:"limitAllowedChildren,omitempty"`
	// LimitAllowedParents restricts the types of the workspace directly above.
	//
	// +optional
	LimitAllowedParents *WorkspaceTypeSelector `json:"limitAllowedParents,omitempty"`
	// DefaultAPIBindings are the APIs that new workspaces are bound to.
	//
	// +optional
	DefaultAPIBindings []APIExportReference `json:"defaultAPIBindings,omitempty"`
	// DefaultAPIBindingLifecycle is InitializeOnly, or Maintain to keep the default bindings as the exports change.
	//
	// +optional
	DefaultAPIBindingLifecycle *APIBindingLifecycleMode `json:"defaultAPIBindingLifecycle,omitempty"`
	// InitializerPermissions are what the initializer may do in a workspace while it initializes it. Without any, it acts
	// as the owner of the workspace.
	//
	// +optional
	InitializerPermissions []rbacv1.PolicyRule `json:"initializerPermissions,omitempty"`
	// TerminatorPermissions are what the terminator may do in a workspace while it terminates it. Without any, it acts as
	// the owner of the workspace.
	//
	// +optional
	TerminatorPermissions []rbacv1.PolicyRule `json:"terminatorPermissions,omitempty"`
	// AuthenticationConfigurations are in the workspace of the type, and admit users to workspaces of the type.
	//
	// +optional
	AuthenticationConfigurations []AuthenticationConfigurationReference `json:"authenticationConfigurations,omitempty"`
}

// WorkspaceTypeExtension names the types that a type extends.
type WorkspaceTypeExtension struct {
	// With are the types.
	//
	// +optional
	With []WorkspaceTypeReference `json:"with,omitempty"`
}

// WorkspaceTypeSelector is no type, or a set of types.
//
// +kubebuilder:validation:XValidation:rule="(has(self.none) && self.none) != has(self.types)",message="exactly one of none and types must be set"
type WorkspaceTypeSelector struct {
	// None selects no type.
	//
	// +optional
	None bool `json:"none,omitempty"`
	// Types that are selected, and those that extend them.
	//
	// +optional
	// +kubebuilder:validation:MinItems:=1
	Types []WorkspaceTypeReference `json:"types,omitempty"`
}

// APIExportReference names an APIExport.
type APIExportReference struct {
	// Path of the workspace that the APIExport is in. Empty: that of the type.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Export is the name of the APIExport.
	//
	// +required
	Export string `json:"export"`
}

// AuthenticationConfigurationReference names a WorkspaceAuthenticationConfiguration.
type AuthenticationConfigurationReference struct {
	// Name of the configuration.
	//
	// +required
	Name string `json:"name"`
}

// VirtualWorkspaceType says what a virtual workspace is for.
//
// +kubebuilder:validation:Enum=initializing;terminating
type VirtualWorkspaceType string

// The types of virtual workspaces.
const (
	VirtualWorkspaceTypeInitializing VirtualWorkspaceType = "initializing"
	VirtualWorkspaceTypeTerminating  VirtualWorkspaceType = "terminating"
)

// VirtualWorkspace is where the initializer or terminator of a type finds its workspaces on one shard.
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
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// VirtualWorkspaces are two for each shard, ordered by the shard's name.
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
