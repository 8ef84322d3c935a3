// Package workspaces creates, deletes and shows the logical clusters of Workspaces on other shards. The shard of the Workspace holds the
// record of where its cluster is, and is the only one that has it created and deleted. The shard of the cluster reports what the Workspace
// shows.
//
// Invariants:
//   - The record is stored before the cluster is created. A creation for the same Workspace succeeds again; one for another Workspace, or
//     after the deletion, never does.
//   - A cluster is created and deleted for the shard that holds the parent, as the records from root to it say. Its own claim is no proof.
//   - A cluster is deleted by the UID of its Workspace. That it, or its Workspace, was not found deletes nothing.
//   - A state is shown if the record names the shard that reports it, the cluster and the epoch.
package workspaces

import tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"

var workspaceResource = tenancyv1alpha1.Resource("workspaces")
