// Package v1alpha1 is the first version of the API group core.kcp.io: the logical cluster itself.
//
// +kubebuilder:object:generate=true
// +groupName=core.kcp.io
package v1alpha1
