// Package logicalcluster names the tenant of a request. Only the context carries that name: the path filter adds it,
// the storage layer converts it to a key, and everything in between passes the context on.
package logicalcluster
