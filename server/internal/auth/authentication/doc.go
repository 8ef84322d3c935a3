// Package authentication binds service account tokens to a logical cluster: tokens contain its name, are checked
// against the objects of that cluster, and pass the cluster of their account to every later step. It also limits
// impersonation to the cluster of a request.
//
// The cluster of a token depends only on the token, not on the request. Therefore a cache of responses by token is
// correct around Wrap. Upstream's cache is below Wrap, where the context is lost, and must be disabled.
package authentication
