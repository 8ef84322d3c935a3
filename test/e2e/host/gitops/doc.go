// Package gitops tests that Argo CD and the Operator Lifecycle Manager install the operator of the commit in test/skew on a real
// Kubernetes, and upgrade it beside an installation, and that Argo CD creates and upgrades an installation from a Git repository. Its tests
// have the build tag gitops, because both take minutes to build: make e2e-gitops.
package gitops
