// Package cacheserver serves the objects that every shard of an installation must be able to read. Each shard writes its own part, and
// reads all of them:
//
//	/services/cache/shards/<shard>/clusters/<logical cluster>/apis/<group>/<version>/<resource>[:<identity>]/<name>
//
// Lists and watches may have * in place of the shard, the logical cluster, or both. The API is that of Kubernetes with these differences:
//
//   - Objects are neither validated, defaulted, pruned nor converted. There is no status subresource: an update writes spec and status.
//   - The generation is the one of the writer, and deletion ignores finalizers.
//   - Objects have the annotations kcp.io/shard and kcp.io/cluster, which the server sets.
//   - An update that was made by a former leader of a shard, or of an earlier state of the object, is refused: see supersedes.
//   - Lists have at most some hundred objects, even without a limit in the request: clients follow the continue token.
//
// The server keeps nothing in memory that another replica on the same etcd would need. Everything in it can be lost: the shards fill a new
// cache, which they recognize by InstanceHeader.
package cacheserver
