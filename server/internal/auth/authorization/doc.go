// Package authorization decides what a request may do in its logical cluster: a chain of steps, each of which is visible
// in the audit log. RBAC is upstream's evaluation of rules; this package chooses which roles and bindings of which
// cluster it sees, and under which identities.
//
// The bootstrap policy is held in memory and applies to every cluster as if its roles and bindings were stored there.
package authorization
