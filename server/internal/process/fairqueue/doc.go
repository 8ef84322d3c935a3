// Package fairqueue shares the capacity of one process among its tenants: requests in flight, seats to run on, and memory for bodies and
// responses.
//
// # The tree
//
// Each request belongs to a cluster, which is a leaf of a tree: account, unit, owner, cluster. A unit is a workspace directly below root
// (or a home), the account is the user that owns the unit, and the owner is the user that owns the cluster. Only members with requests,
// or with requests until recently, are in memory.
//
// # Seats
//
// A seat is the right to use a processor. While only one cluster is active there is no limit. With two or more active clusters, there is
// one seat for each processor, and the member with the least seat time comes next: start-time fair queueing at every level of the tree,
// first come first served within a cluster. While another member of a level is active, no member gets more than half of the seats of that
// level. Therefore a request of a quiet tenant finds a free seat, and does not wait for a long request of a busy tenant. A request gives
// its seat back while it waits: for etcd to store what it writes (a bounded number of bytes for each account), for a host of a tenant,
// for memory, and for a client that does not read or send.
//
// # Slots and memory
//
// The total numbers of requests in flight and of bytes in use are bounded. A member of a level may use as much as is free at that level.
// Therefore k busy members use 1/(k+1) each, and there is always capacity for the next one: a refused member uses more than the others.
// Choudhury and Hahne describe this rule for shared buffers ("Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998).
// While others are active, a refusal is delayed by a second: otherwise a client that retries immediately would cost as much as a client
// whose requests are accepted.
//
// # Why not upstream's queues
//
// k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing works without FlowSchemas (a QueueSet can be used directly), but does not fit:
//
//   - It has one level. Fairness among units and, within them, among clusters needs two levels, and a QueueSet for each unit has a separate
//     limit: seats cannot move from one QueueSet to another.
//   - Flows are hashed into a fixed set of queues. With 64 queues and hands of 6, as upstream has by default, flows share queues, and a
//     tenant that is active in many clusters is in every queue. Choosing what runs next looks at all queues: more of them cost more.
//   - A request has its seat until it ends. A server in which 32 writes wait together for one fsync would need more seats than it
//     has processors, and a request that waits for a webhook of a tenant would keep its seat.
//   - Choosing a queue and a request, and passing on the decision, allocates for each request, whether or not others wait.
package fairqueue
