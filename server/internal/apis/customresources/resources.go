package customresources

import (
	"slices"
	"strings"
)

// resources are the definitions that a cluster or a view serves, sorted by key. Nearly all have few of them, and a view usually one, for
// which a map takes half a kilobyte.
type resources []resource

type resource struct {
	key string // of the definition
	Installed
}

func (r resources) find(key string) (int, bool) {
	return slices.BinarySearchFunc(r, key, func(a resource, key string) int { return strings.Compare(a.key, key) })
}

// get returns the definition of a resource; the empty value if there is none.
func (r resources) get(key string) (Installed, bool) {
	if at, ok := r.find(key); ok {
		return r[at].Installed, true
	}
	return Installed{}, false
}

// with returns r with the definition of a resource, in the same memory if possible.
func (r resources) with(key string, now Installed) resources {
	at, ok := r.find(key)
	if ok {
		r[at].Installed = now
		return r
	}
	return slices.Insert(r, at, resource{key, now})
}

// without returns r without a resource, in the same memory.
func (r resources) without(key string) resources {
	if at, ok := r.find(key); ok {
		return slices.Delete(r, at, at+1)
	}
	return r
}
