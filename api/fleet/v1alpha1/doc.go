// Package v1alpha1 is the first version of the API group fleet.kcp.io: workspaces whose objects run on attached Kubernetes clusters. It
// belongs to an add-on. The server does not serve this group itself: Cluster, Assignment and Workload are kinds of the workspace of the
// fleet's provider, and Placement is what that workspace exports.
//
// +kubebuilder:object:generate=true
// +groupName=fleet.kcp.io
package v1alpha1
