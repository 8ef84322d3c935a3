package informers

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Placement returns the shard that holds a cluster, empty if that is not known, and the clusters that the answer depends on: those whose
// LogicalCluster, or whose Workspace in the parent, it read or missed. It reads the informers and must not change them.
type Placement func(cluster logicalcluster.Name) (shard string, via []logicalcluster.Name)

// Elsewhere has the objects of global kinds that other shards offer, in the second stores of the informers. It exists only on a server
// with other shards.
//
// Invariants:
//   - places has an entry for exactly the clusters of which a store has an object. Its shard is what placement returned after the last
//     change of what it depends on, so a look-up costs one access to a map.
//   - A handler has received exactly the objects that count. A change of a place delivers the difference.
//   - changing is locked before the mutex of an informer, and never by a look-up.
type Elsewhere struct {
	placement Placement
	informers []*Informer // complete before the first change

	changing sync.Mutex // serializes changes and their delivery
	// changed is called with the cluster of each change; changing is held. See OnChange.
	changed func(logicalcluster.Name)

	mu     sync.RWMutex // guards what follows
	places map[logicalcluster.Name]*place
	// objects is the number of objects of all places.
	objects int
	// dependents are the clusters whose place depends on a cluster, other than itself.
	dependents map[logicalcluster.Name]map[logicalcluster.Name]bool
}

type place struct {
	shard   string // the holder; empty if it is not known
	objects int
	via     []logicalcluster.Name // without the cluster itself
}

// Share gives the informers of global kinds a second store, for objects of other shards. It must be called before Start.
func (f *Factory) Share(placement Placement) (*Elsewhere, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &Elsewhere{
		placement: placement, changed: func(logicalcluster.Name) {}, places: map[logicalcluster.Name]*place{},
		dependents: map[logicalcluster.Name]map[logicalcluster.Name]bool{},
	}
	for _, kind := range Kinds() {
		i, ok := f.informers[kind.Resource]
		if !ok || !kind.Global && !kind.Edge {
			continue
		}
		var err error
		if i.remote, err = newRemote(e, i, kind); err != nil {
			return nil, err
		}
		for _, indexers := range i.added {
			if err := i.remote.add(indexers); err != nil {
				return nil, err
			}
		}
		if kind.Edge {
			i.edges = e
		} else {
			i.merged = i.remote
		}
		e.informers = append(e.informers, i)
	}
	return e, nil
}

// Informers returns the informers of all kinds that shards offer to each other.
func (e *Elsewhere) Informers() []*Informer { return e.informers }

// Len returns the number of objects that other shards offer, and that are in memory.
func (e *Elsewhere) Len() int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.objects
}

// OnChange calls f with every cluster of which an object of another shard, or the holder, has changed. f must neither block nor change
// Elsewhere. It must be called before the first change.
func (e *Elsewhere) OnChange(f func(cluster logicalcluster.Name)) { e.changed = f }

// OfferedKey identifies an object that a shard offers.
type OfferedKey struct {
	Shard string
	Key
}

// Offered returns an object as a shard offers it, whether it counts or not.
func (e *Elsewhere) Offered(i *Informer, key OfferedKey) (runtime.Object, bool) {
	return i.remote.from(key.Shard, key.Key.String())
}

// AllOffered returns the keys of all objects that shards offer.
func (e *Elsewhere) AllOffered(i *Informer) []OfferedKey {
	return offeredKeys(i.remote.store.keys())
}

// OfferedIn returns the keys of the objects of a cluster that shards offer.
func (e *Elsewhere) OfferedIn(i *Informer, cluster logicalcluster.Name) []OfferedKey {
	return i.remote.keysIn(cluster)
}

// Holder returns the shard that holds a cluster of which another shard offers an object; empty if that is not known.
func (e *Elsewhere) Holder(cluster logicalcluster.Name) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if p := e.places[cluster]; p != nil {
		return p.shard
	}
	return ""
}

// Set stores an object that a shard offers. The object must not change after that.
func (e *Elsewhere) Set(i *Informer, shard string, obj runtime.Object) error {
	key, err := KeyOf(obj)
	if err != nil {
		return err
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	old, existed := i.remote.from(shard, key.String())
	if !existed {
		e.enter(key.Cluster)
	}
	if err := e.store(i, OfferedKey{shard, key}, old, obj); err != nil {
		return err
	}
	e.moved(i, old, obj)
	e.changed(key.Cluster)
	return nil
}

// Delete removes an object that a shard offered.
func (e *Elsewhere) Delete(i *Informer, shard string, key Key) error {
	e.changing.Lock()
	defer e.changing.Unlock()
	old, existed := i.remote.from(shard, key.String())
	if !existed {
		return nil
	}
	i.mu.Lock()
	err := i.remote.change(remoteKey(shard, key.String()), old, nil)
	if err == nil && e.Holder(key.Cluster) == shard {
		i.deliverRemote(old, nil)
	}
	i.mu.Unlock()
	if err != nil {
		return err
	}
	e.leave(key.Cluster)
	e.moved(i, old, nil)
	e.changed(key.Cluster)
	return nil
}

// store replaces old and delivers the change.
func (e *Elsewhere) store(i *Informer, key OfferedKey, old, obj runtime.Object) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.remote.change(remoteKey(key.Shard, key.Key.String()), old, obj); err != nil {
		return err
	}
	i.detector.AddObject(obj)
	if i.remote.counts(key) {
		i.deliverRemote(old, obj)
	}
	return nil
}

// enter counts an object of a cluster, and finds the place of a new one.
func (e *Elsewhere) enter(cluster logicalcluster.Name) {
	e.mu.Lock()
	p := e.places[cluster]
	if p == nil {
		p = &place{}
		e.places[cluster] = p
	}
	p.objects++
	e.objects++
	e.mu.Unlock()
	if p.objects == 1 {
		e.settle(cluster)
	}
}

// leave counts down the objects of a cluster, and forgets the place of one without objects.
func (e *Elsewhere) leave(cluster logicalcluster.Name) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.objects--
	p := e.places[cluster]
	if p.objects--; p.objects > 0 {
		return
	}
	e.depend(cluster, p, nil)
	delete(e.places, cluster)
}

// depend records what the place of a cluster depends on; e.mu is held.
func (e *Elsewhere) depend(cluster logicalcluster.Name, p *place, via []logicalcluster.Name) {
	for _, on := range p.via {
		if of := e.dependents[on]; len(of) == 1 {
			delete(e.dependents, on)
		} else {
			delete(of, cluster)
		}
	}
	p.via = via
	for _, on := range via {
		if e.dependents[on] == nil {
			e.dependents[on] = map[logicalcluster.Name]bool{}
		}
		e.dependents[on][cluster] = true
	}
}

// settle finds the place of a cluster again, and delivers the objects that begin to count, or end.
func (e *Elsewhere) settle(cluster logicalcluster.Name) {
	shard, via := e.locate(cluster)
	for range maxLocate { // again, because what it depends on may have changed before that was recorded
		if !e.record(cluster, via) {
			break
		}
		shard, via = e.locate(cluster)
	}
	before, known := e.place(cluster, shard)
	if !known || before == shard {
		return
	}
	for _, i := range e.informers {
		e.replace(i, cluster, before, shard)
	}
	e.changed(cluster)
}

// maxLocate limits how often settle locates a cluster whose ancestors change all the time. Each of these changes settles it again.
const maxLocate = 4

// locate returns the holder of a cluster, and the other clusters that the answer depends on, each once.
func (e *Elsewhere) locate(cluster logicalcluster.Name) (shard string, via []logicalcluster.Name) {
	shard, found := e.placement(cluster)
	for _, on := range found {
		if on != cluster && !slices.Contains(via, on) {
			via = append(via, on)
		}
	}
	return shard, via
}

// record records what the place of a cluster depends on, and reports whether that has changed.
func (e *Elsewhere) record(cluster logicalcluster.Name, via []logicalcluster.Name) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.places[cluster]
	if p == nil || slices.Equal(p.via, via) {
		return false
	}
	e.depend(cluster, p, via)
	return true
}

// place sets the holder of a cluster, and returns the previous one; false for a cluster of which no store has an object.
func (e *Elsewhere) place(cluster logicalcluster.Name, shard string) (before string, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.places[cluster]
	if p == nil {
		return "", false
	}
	before, p.shard = p.shard, shard
	return before, true
}

// replace delivers that the objects of one shard count instead of those of another.
func (e *Elsewhere) replace(i *Informer, cluster logicalcluster.Name, before, shard string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := map[string]runtime.Object{}
	for _, o := range i.remote.in(cluster, func(key OfferedKey) bool { return key.Shard == before }) {
		old[o.key] = o.obj
	}
	for _, o := range i.remote.in(cluster, func(key OfferedKey) bool { return key.Shard == shard }) {
		i.deliverRemote(old[o.key], o.obj)
		delete(old, o.key)
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		i.deliverRemote(old[key], nil)
	}
}

// moved settles every cluster whose place may depend on an edge that changed.
func (e *Elsewhere) moved(i *Informer, old, obj runtime.Object) {
	if i.edges == nil {
		return
	}
	for _, cluster := range edgesOf(old, obj) {
		e.settleAll(cluster)
	}
}

// Reevaluate settles clusters whose edges in this shard have changed.
func (e *Elsewhere) Reevaluate(clusters ...logicalcluster.Name) {
	if len(clusters) == 0 {
		return
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	for _, cluster := range clusters {
		e.settleAll(cluster)
	}
}

// concerns reports whether the place of any cluster depends on a cluster.
func (e *Elsewhere) concerns(cluster logicalcluster.Name) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.places[cluster] != nil || len(e.dependents[cluster]) > 0
}

// settleAll settles a cluster and those whose place depends on it.
func (e *Elsewhere) settleAll(cluster logicalcluster.Name) {
	e.mu.RLock()
	dependents := slices.Sorted(maps.Keys(e.dependents[cluster]))
	e.mu.RUnlock()
	e.settle(cluster)
	for _, dependent := range dependents {
		e.settle(dependent)
	}
}

// edgesOf returns the clusters whose places an edge decides in its old and its new state.
func edgesOf(states ...runtime.Object) []logicalcluster.Name {
	var clusters []logicalcluster.Name
	for _, obj := range states {
		cluster := logicalcluster.Name("")
		switch edge := obj.(type) {
		case *corev1alpha1.LogicalCluster:
			cluster = logicalcluster.Of(edge)
		case *tenancyv1alpha1.Workspace:
			if cluster = logicalcluster.Name(edge.Spec.Cluster); cluster == "" {
				cluster = logicalcluster.Name(edge.Annotations[tenancyv1alpha1.ClusterAnnotation])
			}
		}
		if cluster != "" && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// touch records the clusters whose places an edge of this shard decides, if that concerns objects of other shards; s.mu is held.
func (s *deliveringStore) touch(old, obj runtime.Object) {
	for _, cluster := range edgesOf(old, obj) {
		if s.edges.concerns(cluster) {
			s.touched = append(s.touched, cluster)
		}
	}
}

// settle handles changed edges, after the mutex is released.
func (s *deliveringStore) settle() {
	if s.edges == nil {
		return
	}
	s.mu.Lock()
	touched := s.touched
	s.touched = nil
	s.mu.Unlock()
	s.edges.Reevaluate(touched...)
}
