// Package v1alpha1 is the first version of the API group apis.kcp.io: APIs that are provided in one workspace and used in
// others.
//
// +kubebuilder:object:generate=true
// +groupName=apis.kcp.io
package v1alpha1
