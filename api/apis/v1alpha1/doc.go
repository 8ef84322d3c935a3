// Package v1alpha1 is the first version of the API group apis.kcp.io: APIs that one workspace exports and others bind.
//
// +kubebuilder:object:generate=true
// +groupName=apis.kcp.io
package v1alpha1
