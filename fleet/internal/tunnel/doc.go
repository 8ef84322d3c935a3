// Package tunnel has the connection that the agent of a cluster opens to the fleet, through which the fleet sends requests to the cluster.
// Streams share the connection, each with its own flow control.
package tunnel
