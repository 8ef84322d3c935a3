package customresources

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Installed is a definition in one cluster.
type Installed struct {
	*Definition
	// Terminating definitions serve all verbs except create.
	Terminating bool
	// Binding is the name of the APIBinding of the definition; empty for a CustomResourceDefinition of the cluster.
	Binding string
	// boundAt is when the registry received the binding, relative to the creation of the registry.
	boundAt time.Duration
}

// same reports whether two values are equal except for boundAt.
func (i Installed) same(other Installed) bool {
	i.boundAt = other.boundAt
	return i == other
}

// registry holds the definitions of all clusters, each distinct one once. An informer updates it.
type registry struct {
	made    time.Time
	compile func(*Definition) (http.Handler, error)
	system  map[string]*Definition // by Key
	// moved is called when another definition serves a resource of a cluster, or none does any more; forgotten is
	// called when no cluster serves it. Neither is called with the lock held.
	moved     func(cluster logicalcluster.Name, key string)
	forgotten func(key string)
	// isSystemResource reports whether a resource of an export is a system definition.
	isSystemResource func(cluster logicalcluster.Name, export string, resource schema.GroupResource) bool
	// conversions are the conversion rules of schemas, by the names of the schemas.
	conversions informers.Lister[*apisv1alpha1.APIConversion]

	mu        sync.RWMutex
	byHash    map[string]*Definition
	byContent map[contentKey]*Definition
	byKey     map[string][]*Definition // those with references
	installed map[logicalcluster.Name]resources
	bound     bound
	listeners []func()
}

func newRegistry(compile func(*Definition) (http.Handler, error)) *registry {
	return &registry{
		made: time.Now(), compile: compile, system: map[string]*Definition{}, byHash: map[string]*Definition{},
		byContent:        map[contentKey]*Definition{},
		byKey:            map[string][]*Definition{},
		installed:        map[logicalcluster.Name]resources{},
		bound:            newBound(),
		isSystemResource: exports.System{}.IsSystemResource,
		moved:            func(logicalcluster.Name, string) {}, forgotten: func(string) {},
	}
}

// addSystem registers a definition that every cluster has.
func (r *registry) addSystem(crd *apiextensionsv1.CustomResourceDefinition, compile func(*Definition) (http.Handler, error)) error {
	hash, err := hashOf(crd, sharing{})
	if err != nil {
		return err
	}
	d := newDefinition(hash, sharing{}, crd, compile)
	d.system = true
	d.references = 1 // of the server: views are created and removed
	r.system[d.Key()] = d
	return nil
}

// watch watches the definitions of all clusters, and makes equal specs share memory.
func (r *registry) watch(i *informers.Informer) {
	i.AddTransform(r.share)
	i.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			r.remove(old.(*apiextensionsv1.CustomResourceDefinition))
			return
		}
		r.set(obj.(*apiextensionsv1.CustomResourceDefinition))
	})
}

// share replaces the content of a definition by equal content that the registry holds. An established definition is delivered to set after
// it was shared. Until then its content has no references in the registry.
func (r *registry) share(obj runtime.Object) {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !served(crd) {
		return
	}
	if d, err := r.definition(crd, sharing{}); err == nil {
		crd.Spec, crd.Status.AcceptedNames = d.stored.Spec, d.stored.Status.AcceptedNames
	}
}

// contentKey distinguishes the results of definition without reading all of the content.
type contentKey struct {
	versions *apiextensionsv1.CustomResourceDefinitionVersion
	sharing
}

// definition returns the single definition with the content of crd and the given sharing.
func (r *registry) definition(crd *apiextensionsv1.CustomResourceDefinition, shared sharing) (*Definition, error) {
	r.mu.RLock()
	d, ok := r.byContent[contentKey{content(crd), shared}]
	r.mu.RUnlock()
	if ok {
		return d, nil
	}
	hash, err := hashOf(crd, shared)
	if err != nil {
		return nil, fmt.Errorf("content of definition %s: %w", crd.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.byHash[hash]; ok {
		return d, nil
	}
	d = newDefinition(hash, shared, crd, r.compile)
	r.byHash[hash] = d
	if c := content(crd); c != nil {
		r.byContent[contentKey{c, shared}] = d
	}
	return d, nil
}

func served(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// set brings the registry up to date with a definition of the cluster that it was read from.
func (r *registry) set(crd *apiextensionsv1.CustomResourceDefinition) {
	if !served(crd) {
		r.remove(crd)
		return
	}
	d, err := r.definition(crd, sharing{})
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	now := Installed{Definition: d,
		Terminating: crd.DeletionTimestamp != nil || apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating)}
	r.replace(logicalcluster.Of(crd), d.Key(), now)
}

func (r *registry) remove(crd *apiextensionsv1.CustomResourceDefinition) {
	cluster, key := logicalcluster.Of(crd), ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	if i, _ := r.get(cluster, key); i.Binding != "" {
		return
	}
	r.replace(cluster, key, Installed{})
}

// replace makes now serve a resource in a cluster; the empty value removes the resource.
func (r *registry) replace(cluster logicalcluster.Name, key string, now Installed) {
	r.mu.Lock()
	before, _ := r.installed[cluster].get(key)
	if before.same(now) {
		r.mu.Unlock()
		return
	}
	if now.Definition != nil {
		r.installed[cluster] = r.installed[cluster].with(key, now)
		r.hold(now.Definition)
	} else if left := r.installed[cluster].without(key); len(left) > 0 {
		r.installed[cluster] = left
	} else {
		delete(r.installed, cluster)
	}
	unused := before.Definition != nil && r.release(before.Definition)
	forgotten := len(r.byKey[key]) == 0
	r.mu.Unlock()

	if before.Definition != nil && before.Definition != now.Definition {
		r.moved(cluster, key)
	}
	if unused {
		before.close()
	}
	if forgotten {
		r.forgotten(key)
	}
	r.changed()
}

// hold adds a reference.
func (r *registry) hold(d *Definition) {
	d.references++
	if key := d.Key(); !slices.Contains(r.byKey[key], d) {
		r.byKey[key] = append(r.byKey[key], d)
	}
}

// release drops a reference, and reports whether it was the last.
func (r *registry) release(d *Definition) bool {
	d.references--
	if d.references > 0 {
		return false
	}
	delete(r.byHash, d.Hash)
	delete(r.byContent, contentKey{content(d.stored), d.sharing})
	key := d.Key()
	left := slices.DeleteFunc(r.byKey[key], func(other *Definition) bool { return other == d })
	if r.byKey[key] = left; len(left) == 0 {
		delete(r.byKey, key)
	}
	return true
}

// get returns the definition that serves a resource in a cluster.
func (r *registry) get(cluster logicalcluster.Name, key string) (Installed, bool) {
	if d, ok := r.system[key]; ok && servedIn(key, cluster) {
		return Installed{Definition: d}, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.installed[cluster].get(key)
}

// anywhere returns a definition of a resource that stores objects and serves version in some cluster: the same one as long as the
// definitions do not change.
func (r *registry) anywhere(key, version string) (*Definition, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var found *Definition
	for _, d := range r.byKey[key] {
		if d.Serves(version) && !d.IsVirtual() && (found == nil || d.Hash < found.Hash) {
			found = d
		}
	}
	return found, found != nil
}

// list returns the definitions that a cluster serves, sorted by name.
func (r *registry) list(cluster logicalcluster.Name) []Installed {
	var all []Installed
	for key, d := range r.system {
		if servedIn(key, cluster) {
			all = append(all, Installed{Definition: d})
		}
	}
	r.mu.RLock()
	for _, i := range r.installed[cluster] {
		if _, ok := r.system[i.key]; !ok || !servedIn(i.key, cluster) {
			all = append(all, i.Installed)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b Installed) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// distinct returns each definition of all clusters once.
func (r *registry) distinct() []*Definition {
	var all []*Definition
	for _, d := range r.system {
		all = append(all, d)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, d := range r.byHash {
		if d.references > 0 {
			all = append(all, d)
		}
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
