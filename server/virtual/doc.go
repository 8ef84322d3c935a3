// Package virtual lets a program show logical clusters in another way than they are: as virtual workspaces, at
// /services/<name>/…, each with rules of its own for who may see and do what.
//
// A virtual workspace is a View. It is asked twice for each request: whether the user may do that, and then for the answer,
// which it gives itself or by next, the API of the logical clusters. What is left is the same for all of them, and done
// here: the path is taken apart (Views), identities that are not the client's are refused, and nothing reaches a view that
// it has not authorized.
//
// The virtual workspaces of kcp itself are in the packages below this one, and run in the server. To write one of your own
// you need no more than these packages:
//
//   - virtual/program runs views in a program beside kcp: it serves TLS, lets kcp authenticate users and decide what they may
//     do in which logical cluster, and gives you clients that reach all of them.
//   - virtual/resources serves resources that you describe with a CustomResourceDefinition, with everything that clients
//     expect: discovery, OpenAPI, validation, defaults, all verbs, watches with bookmarks, apply, tables, status and scale.
//     Where the objects are is up to you: in kcp, in another form, or in a system of yours.
//   - logicalcluster puts the logical cluster into the context of a call.
//
// docs/examples/notes is a complete example. docs/virtual-workspaces.md tells how to run it.
package virtual
