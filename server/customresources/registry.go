package customresources

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Installed is a definition as one cluster holds it.
type Installed struct {
	*Definition
	// Terminating definitions serve everything but creation.
	Terminating bool
}

// registry knows the definitions of all clusters, each distinct one once. It is fed by an informer.
type registry struct {
	compile func(*Definition) (http.Handler, error)
	system  map[string]*Definition // by Key

	mu        sync.RWMutex
	byHash    map[string]*Definition
	installed map[logicalcluster.Name]map[string]Installed // by Key
	listeners []func()
}

func newRegistry(compile func(*Definition) (http.Handler, error)) *registry {
	return &registry{
		compile: compile, system: map[string]*Definition{}, byHash: map[string]*Definition{},
		installed: map[logicalcluster.Name]map[string]Installed{},
	}
}

// addSystem registers a definition that every cluster has.
func (r *registry) addSystem(crd *apiextensionsv1.CustomResourceDefinition) error {
	hash, err := hashOf(crd)
	if err != nil {
		return err
	}
	d := newDefinition(hash, crd, r.compile)
	r.system[d.Key()] = d
	return nil
}

// watch follows the definitions of all clusters, and makes equal specs share memory.
func (r *registry) watch(i *informers.Informer) {
	i.SetTransform(r.share)
	i.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			r.remove(old.(*apiextensionsv1.CustomResourceDefinition))
			return
		}
		r.set(obj.(*apiextensionsv1.CustomResourceDefinition))
	})
}

// share drops from a definition what nobody reads, and replaces its spec by an equal one that is held already.
func (r *registry) share(obj runtime.Object) {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	crd.ManagedFields = nil
	delete(crd.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	hash, err := hashOf(crd)
	if err != nil {
		return
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if d, ok := r.byHash[hash]; ok {
		crd.Spec, crd.Status.AcceptedNames = d.CRD.Spec, d.CRD.Status.AcceptedNames
	}
}

func served(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

func (r *registry) set(crd *apiextensionsv1.CustomResourceDefinition) {
	if !served(crd) {
		r.remove(crd)
		return
	}
	if _, err := r.install(crd); err != nil {
		panic(fmt.Sprintf("definition %s that came out of storage cannot be encoded: %v", crd.Name, err))
	}
}

// install registers an established definition in the cluster that it was read from.
func (r *registry) install(crd *apiextensionsv1.CustomResourceDefinition) (Installed, error) {
	hash, err := hashOf(crd)
	if err != nil {
		return Installed{}, err
	}
	r.mu.Lock()
	cluster, key := logicalcluster.Of(crd), ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	d, ok := r.byHash[hash]
	if !ok {
		d = newDefinition(hash, crd, r.compile)
		r.byHash[hash] = d
	}
	before, existed := r.installed[cluster][key]
	now := Installed{Definition: d, Terminating: crd.DeletionTimestamp != nil || apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating)}
	if r.installed[cluster] == nil {
		r.installed[cluster] = map[string]Installed{}
	}
	r.installed[cluster][key] = now
	d.references++
	var unused *Definition
	if existed {
		unused = r.release(before.Definition)
	}
	r.mu.Unlock()
	if unused != nil {
		unused.close()
	}
	if before != now {
		r.changed()
	}
	return now, nil
}

func (r *registry) remove(crd *apiextensionsv1.CustomResourceDefinition) {
	r.mu.Lock()
	cluster, key := logicalcluster.Of(crd), ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	before, existed := r.installed[cluster][key]
	if !existed {
		r.mu.Unlock()
		return
	}
	delete(r.installed[cluster], key)
	if len(r.installed[cluster]) == 0 {
		delete(r.installed, cluster)
	}
	unused := r.release(before.Definition)
	r.mu.Unlock()
	if unused != nil {
		unused.close()
	}
	r.changed()
}

// release gives up one reference, and returns d if it was the last.
func (r *registry) release(d *Definition) *Definition {
	d.references--
	if d.references > 0 {
		return nil
	}
	delete(r.byHash, d.Hash)
	return d
}

// get returns what serves a resource in a cluster.
func (r *registry) get(cluster logicalcluster.Name, key string) (Installed, bool) {
	if d, ok := r.system[key]; ok {
		return Installed{Definition: d}, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	i, ok := r.installed[cluster][key]
	return i, ok
}

// anywhere returns some definition of a resource, from whichever cluster.
func (r *registry) anywhere(key string) (*Definition, bool) {
	if d, ok := r.system[key]; ok {
		return d, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, d := range r.byHash {
		if d.Key() == key {
			return d, true
		}
	}
	return nil, false
}

// list returns what a cluster serves, in the order of names.
func (r *registry) list(cluster logicalcluster.Name) []Installed {
	var all []Installed
	for _, d := range r.system {
		all = append(all, Installed{Definition: d})
	}
	r.mu.RLock()
	for key, i := range r.installed[cluster] {
		if _, ok := r.system[key]; !ok {
			all = append(all, i)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b Installed) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// distinct returns every definition of every cluster once.
func (r *registry) distinct() []*Definition {
	var all []*Definition
	for _, d := range r.system {
		all = append(all, d)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, d := range r.byHash {
		all = append(all, d)
	}
	return all
}

func (r *registry) onChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, f)
}

func (r *registry) changed() {
	r.mu.RLock()
	listeners := r.listeners
	r.mu.RUnlock()
	for _, f := range listeners {
		f()
	}
}
