// Package endpoints reads objects that a provider publishes to the consumers of an export from a virtual workspace that the
// provider runs. An endpoint slice of any kind in the provider's workspace contains its URL. Because tenants write the URL,
// the server connects only to URLs that its administrator allows for exports of that workspace, and sends no data that could
// be used against it: it authenticates with a client certificate, and sends neither a token nor the identity of a user.
package endpoints
