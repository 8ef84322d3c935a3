// Package fairqueue shares what one process can do at a time among its tenants: requests in flight, seats to run on, and memory for
// what is read and answered.
//
// # The tree
//
// Each request belongs to a cluster, which is a leaf of a tree: account, unit, owner, cluster. A unit is what lies below root (or a
// home), the account is the user that owns the unit, and the owner the user that owns the cluster. Only what has requests, or had some
// a moment ago, is in memory.
//
// # Seats
//
// A seat is the right to use a processor. While only one cluster is active there is no limit. With two or more there is a seat for each
// processor, and whoever has used the least seat time comes next: start-time fair queueing at every level of the tree, first come first
// served within a cluster. No member of a level gets more than half of the seats of that level while another one is active, so that a
// request of a quiet tenant finds a free seat instead of waiting for a long request of a busy one. A request gives its seat back while it
// waits: for etcd to store what it writes (a bounded number of bytes for each account), for a tenant's host, for memory, and for a client
// that does not read or send.
//
// # Slots and memory
//
// The numbers of requests in flight and of bytes in use are bounded in all. A member of a level may have as much as is left free at that
// level, so that k busy members have 1/(k+1) each, and there is always room for the next one: whoever is refused has more than those
// who are not. The rule is the one of Choudhury and Hahne for shared buffers ("Dynamic Queue Length Thresholds for Shared-Memory Packet
// Switches", 1998). While others are active, a refusal takes a second: a client that sends again at once would cost as much as one whose
// requests are let in.
//
// # Why not upstream's queues
//
// k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing works without FlowSchemas (a QueueSet can be used directly), but does not fit:
//
//   - It has one level. Fairness among units and, within them, among clusters needs two, and a QueueSet for each unit has a limit of its
//     own: seats cannot pass from one to another.
//   - Flows are hashed into a fixed set of queues. With 64 queues and hands of 6, as upstream has by default, flows share queues, and a
//     tenant that is active in many clusters is in every queue. Choosing what runs next looks at all queues: more of them cost more.
//   - A request has its seat until it ends. A server in which 32 writes wait for one fsync together would need more seats than it
//     has processors, and a request that waits for a tenant's webhook would keep one.
//   - Choosing a queue and a request, and passing on the decision, allocates for each request, whether or not others wait.
package fairqueue
