// Package v1alpha1 is the first version of the API group migration.kcp.io: logical clusters that move between shards.
//
// +kubebuilder:object:generate=true
// +groupName=migration.kcp.io
package v1alpha1
