// Package v1alpha1 is the first version of the API group topology.kcp.io: groups of shards.
//
// +kubebuilder:object:generate=true
// +groupName=topology.kcp.io
package v1alpha1
