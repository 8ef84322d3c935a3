// Package v1alpha2 is the second version of the API group apis.kcp.io, in which exports and bindings are stored.
//
// +kubebuilder:object:generate=true
// +groupName=apis.kcp.io
package v1alpha2
