// Package v1alpha1 is the first version of the API group tenancy.kcp.io: workspaces, which arrange logical clusters in a
// tree, and workspace types.
//
// +kubebuilder:object:generate=true
// +groupName=tenancy.kcp.io
package v1alpha1
