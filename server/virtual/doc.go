// Package virtual lets a program serve other representations of logical clusters: virtual workspaces, at
// /services/<name>/…, each with its own authorization.
//
// A virtual workspace is a View. It is called twice for each request: to authorize the request, and then to serve it,
// either itself or by next, the API of the logical clusters. This package does the work that is common to all views: it
// parses the path (Views), rejects impersonation, and passes a request to a view only if the view has authorized it.
//
// The virtual workspaces of kcp itself are in the packages below this one, and run in the server. To write your own, you
// need only these packages:
//
//   - virtual/program runs views in a program beside kcp: it serves TLS, delegates authentication and authorization
//     to kcp, and provides clients for all logical clusters.
//   - virtual/resources serves resources that you define with a CustomResourceDefinition, with all features that
//     clients expect: discovery, OpenAPI, validation, defaults, all verbs, watches with bookmarks, apply, tables,
//     status and scale. You choose where the objects are: in kcp, in another form, or in your own system.
//   - logicalcluster puts the logical cluster into the context of a call.
//
// docs/examples/notes is a complete example. docs/virtual-workspaces.md describes how to run it.
package virtual
