// Package claims decides what permission claims mean: which of them are in effect, for which objects, for which verbs, and
// by which labels objects show it. All of it are pure functions of exports, bindings and labels.
//
// An APIExport claims access to resources of the workspaces that bind it; an APIBinding accepts or rejects each claim, for
// the objects that a selector matches. A claim is in effect if both have it, under the same Key.
package claims
