// Package endpoints reads objects that a provider shows to the consumers of an export out of a virtual workspace of the
// provider's own: an endpoint slice of any kind, in the provider's workspace, tells its URL. Tenants write that, so that the
// server goes only where its operator has said that exports of that very workspace may lead, and takes nothing along that
// could be used against it: it proves who it is by a client certificate, and sends no token, and nobody's identity.
package endpoints
