// Package v1alpha1 is the first version of the API group cache.kcp.io: objects of one workspace that other workspaces can read.
//
// +kubebuilder:object:generate=true
// +groupName=cache.kcp.io
package v1alpha1
