// Package v1alpha1 is the first version of the API group operator.kcp.io: what people write to get kcp, its etcd and its
// certificates on a Kubernetes cluster. Nothing is filled in when an object is stored, so that what is live is what was
// applied; what an unset field means is said at the field.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kcp.io
package v1alpha1
