// Package mount passes requests for mounted workspaces on to the servers that they stand for. A mounted workspace is no
// logical cluster: nothing of it is stored here, and the server behind it authenticates and authorizes as if it were asked
// directly. Where a mount leads is written by tenants, so that requests go to hosts that the operator knows, and nowhere
// else: a tenant could collect the tokens of whoever enters, or reach servers inside of the operator's network.
package mount
