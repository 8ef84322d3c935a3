// Package authorization decides what a request may do in its logical cluster: a chain of steps that are visible in the
// audit log. Upstream evaluates RBAC rules; this package selects the roles and role bindings of a cluster for the
// evaluation, and the identities of the user.
//
// The bootstrap policy is in memory and applies to every cluster as if its roles and role bindings were stored there.
package authorization
