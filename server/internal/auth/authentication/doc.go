// Package authentication makes service account tokens belong to a logical cluster: they carry its name, are checked
// against the objects of that cluster, and tell every later step where their account lives. It also keeps impersonation
// within the cluster of a request.
//
// Which cluster a token is of follows from the token alone, not from the request, so that a cache of responses by token
// is correct if it sits around Wrap. Upstream's sits below, where it loses the context, and must be off.
package authentication
