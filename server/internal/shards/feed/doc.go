// Package feed exchanges the global objects of shards through the cache server: exports, schemas, workspace types, what providers enforce
// for consumers, and where logical clusters are. Each shard offers its own objects, and reads those of the others.
package feed
