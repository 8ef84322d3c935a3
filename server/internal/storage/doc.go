// Package storage enforces tenancy: it is the one place that turns (logical cluster, object) into an etcd key. Every
// type the server serves, built in or custom, is stored through it; nothing else builds a storage key.
//
// Keys are <prefix>/<group>/<resource>/<cluster>/[<namespace>/]<name>, with "core" for the empty group and the segment
// "customresources" behind <resource> for custom ones. The cluster comes from the context alone. An operation without a
// cluster fails, and an operation on all clusters is possible for list and watch only.
//
// There is no watch cache. A logical cluster has few objects of a type and few watchers: reading a range of a handful of
// keys costs less than keeping every object of every cluster in memory a second time, and etcd finds the watchers of an
// event by its key, so that an event costs the watchers of its own cluster only. What decoding costs when the same list is
// read again is saved by a small cache of decoded objects, for the whole process.
//
// Lists over all clusters are long, and read in pages. While a client reads one, the next is made: what it takes of etcd is read with
// several pages at a time, and decoded by all processors. Both are bounded by the lists that are being read just now.
package storage
