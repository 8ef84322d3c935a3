// Package mount proxies requests for mounted workspaces to the mounted servers. A mounted workspace is not a logical cluster: this server
// stores none of its content, and the mounted server authenticates and authorizes as for direct requests. Tenants write the URLs of mounts.
// Therefore requests go only to hosts that the operator of the installation allows: otherwise a tenant could collect the tokens of all
// users who enter the workspace, or reach servers inside of the network of the operator.
package mount
