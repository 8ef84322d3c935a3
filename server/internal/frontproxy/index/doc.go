// Package index says which shard holds a logical cluster, in memory, for all of an installation. It is filled by the tree streams of the
// shards. A workspace costs less than 100 bytes: there are no pointers to it, and no object of its own.
package index
