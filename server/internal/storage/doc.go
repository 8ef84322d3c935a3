// Package storage enforces tenancy: it is the only place that converts (logical cluster, object) to an etcd key. All
// types that the server serves, built in or custom, are stored through it; no other package builds a storage key.
//
// Keys are <prefix>/<group>/<resource>/<cluster>/[<namespace>/]<name>, with "core" for the empty group and the segment
// "customresources" after <resource> for custom ones. The cluster comes only from the context. An operation without a
// cluster fails, and only list and watch are possible across all clusters.
//
// There is no watch cache. A logical cluster has few objects of a type and few watchers: reading a range of a handful of
// keys costs less than keeping every object of every cluster in memory a second time, and etcd finds the watchers of an
// event by its key, so that an event affects only the watchers of its own cluster. A small cache of decoded objects for
// the whole process saves the cost of decoding when the same list is read again. A list of any version is repeated from memory for a
// moment, while this server does not change its objects.
//
// Lists across all clusters are long, and read in pages. While a client reads a page, the server prepares the next one: it reads
// several pages at a time from etcd, and decodes them on all processors. The lists that are currently being read limit the cost of
// both.
package storage
