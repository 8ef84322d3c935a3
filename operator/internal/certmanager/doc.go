// Package certmanager is the part of cert-manager's API that the operator writes and reads. The types are declared here since
// the module of cert-manager asks for versions of libraries that the server is not built with.
//
// +kubebuilder:object:generate=true
package certmanager
