// Package claims decides what permission claims mean: which of them are in effect, for which objects and verbs, and which
// labels objects have for them. All functions are pure functions of exports, bindings and labels.
//
// An APIExport claims access to resources of the workspaces that bind it; an APIBinding accepts or rejects each claim, for
// the objects that a selector matches. A claim is in effect if both the export and the binding have it, with the same Key.
package claims
