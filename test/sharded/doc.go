// Package sharded runs an installation of kcp that consists of several processes on this machine: a root shard, further shards, a cache
// server and front proxies. It is for tests, and for people who try an installation with shards (make run-sharded).
package sharded
