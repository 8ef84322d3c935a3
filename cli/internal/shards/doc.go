// Package shards compares what the shards of an installation hold with where their records say it is. An administrator needs it after a
// shard was restored from a snapshot: several shards are never backed up at one instant.
package shards
