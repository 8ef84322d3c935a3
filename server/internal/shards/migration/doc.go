// Package migration moves a logical cluster from one shard to another while it is in use.
//
// Invariants:
//   - The record of the placement at the parent decides who holds the cluster. It changes by compare-and-swap; an abort raises its epoch.
//     While it cannot be read, fences stay, so that neither side serves the cluster.
//   - The destination drives a migration. It keeps nothing in memory that it could not read or do again: after a crash, Next continues from
//     the record and the two fences.
//   - The origin checks each step against the record itself: a destination cannot make it give up a cluster that it still holds.
package migration
