package informers

import (
	"reflect"
	"slices"
)

// registered is a handler and the informer, or branch of one, that it was added to.
type registered struct {
	handler Handler
	at      *Informer
	all     bool // whether it receives objects of other shards
	// pending are the keys of objects that are older than the handler, and that it has not received yet.
	pending map[string]bool
}

// Branch returns a view of the objects of i, and a function that ends it. Handlers that were added to the branch receive no events after
// that. A branch is not run.
func (i *Informer) Branch() (branch *Informer, end func()) {
	root := i.trunk()
	branch = &Informer{resource: root.resource, store: root.store, indexer: root.indexer, example: root.example,
		synced: root.synced, root: root, remote: root.remote, merged: root.merged, filling: root.filling}
	return branch, func() {
		root.mu.Lock()
		defer root.mu.Unlock()
		root.handlers = slices.DeleteFunc(root.handlers, func(r *registered) bool {
			if r.at == branch {
				r.pending = nil
			}
			return r.at == branch
		})
	}
}

// Branch returns a set with a branch of every informer, for temporary readers, and a function that ends all branches.
func (s *Set) Branch() (branch *Set, end func()) {
	copied := *s
	var ends []func()
	listers := reflect.ValueOf(&copied).Elem()
	for n := range listers.NumField() {
		informer := listers.Field(n).FieldByName("Informer")
		b, end := informer.Interface().(*Informer).Branch()
		informer.Set(reflect.ValueOf(b))
		ends = append(ends, end)
	}
	return &copied, func() {
		for _, end := range ends {
			end()
		}
	}
}
