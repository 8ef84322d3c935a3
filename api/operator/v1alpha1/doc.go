// Package v1alpha1 is the first version of the API group operator.kcp.io: objects from which the operator runs kcp, its
// etcd and its certificates on a Kubernetes cluster. Stored objects have no defaults, so that the live object is the one that was
// applied; the description of each field says what it means when unset.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kcp.io
package v1alpha1
