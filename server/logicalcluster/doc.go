// Package logicalcluster names the tenant of a request. The context is the only carrier of that name: the path filter
// puts it there, the storage layer turns it into a key, and everything between passes the context on.
package logicalcluster
