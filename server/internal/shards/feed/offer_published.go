package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// publishInterval is how long changes of objects are collected before the objects are listed.
	publishInterval = time.Second
	// publishPage is how many objects are read at a time.
	publishPage = 250
)

// selection is what a ClusterCachedResource publishes: the objects of a resource of its cluster that a selector matches, under an identity.
type selection struct {
	resource           schema.GroupVersionResource
	identity, selector string
}

// selectionOf returns the selection of a ClusterCachedResource; nothing if it has no identity.
func selectionOf(cached *cachev1alpha1.ClusterCachedResource) selection {
	if cached.Status.IdentityHash == "" {
		return selection{}
	}
	s := selection{
		resource: schema.GroupVersionResource{Group: cached.Spec.Group, Version: cached.Spec.Version, Resource: cached.Spec.Resource},
		identity: cached.Status.IdentityHash,
	}
	if cached.Spec.LabelSelector != nil {
		s.selector = metav1.FormatLabelSelector(cached.Spec.LabelSelector)
	}
	return s
}

// activeSelection returns the selection of a ClusterCachedResource whose objects this shard publishes, and nothing for other ones.
func activeSelection(obj any) selection {
	cached, ok := obj.(*cachev1alpha1.ClusterCachedResource)
	if !ok || cached.DeletionTimestamp != nil {
		return selection{}
	}
	for _, c := range cached.Status.Conditions {
		if c.Type == cachev1alpha1.ReplicationStarted && c.Status == metav1.ConditionTrue {
			return selectionOf(cached)
		}
	}
	return selection{}
}

// offered returns the resource in the cache server.
func (s selection) offered() schema.GroupVersionResource {
	offered := s.resource
	offered.Resource += ":" + s.identity
	return offered
}

// Published offers the objects that ClusterCachedResources publish. Each ClusterCachedResource has the limits of a logical cluster.
type Published struct {
	offer      *Offer
	controller *runner.Controller

	mu      sync.Mutex // guards what follows
	states  map[informers.Key]*publication
	counted func(informers.Key)
}

// publication is what the cache server has of a ClusterCachedResource. The worker of the ClusterCachedResource owns known.
type publication struct {
	selection selection
	kind      *kind
	// comparison is the number of the comparison after which known was read; zero if it was not read.
	comparison uint64
	known      map[id]*entry
	// count and excess are the numbers of objects in the cache server, and over the limits.
	count, excess int
}

func newPublished(o *Offer) *Published {
	p := &Published{offer: o, states: map[informers.Key]*publication{}, counted: func(informers.Key) {}}
	p.controller = runner.New("feed-offer-published", 2, p.reconcile)
	p.controller.ExpectFailures()
	return p
}

// OnCounted makes p call f with the key of a ClusterCachedResource when Count changes. It must be called before the Offer runs.
func (p *Published) OnCounted(f func(informers.Key)) { p.counted = f }

// Count returns how many objects of a ClusterCachedResource the cache server has.
func (p *Published) Count(key informers.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state := p.states[key]; state != nil {
		return state.count
	}
	return 0
}

// total returns the numbers of objects in the cache server, and over the limits.
func (p *Published) total() (offered, excess int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, state := range p.states {
		offered += state.count
		excess += state.excess
	}
	return offered, excess
}

// follow adds handlers for changes.
func (p *Published) follow() {
	p.offer.in.Set.ClusterCachedResources.AddHandler(func(old, obj runtime.Object) {
		if activeSelection(old) == activeSelection(obj) {
			return
		}
		for _, state := range []runtime.Object{old, obj} {
			if cached, ok := state.(*cachev1alpha1.ClusterCachedResource); ok && cached != nil {
				p.controller.Enqueue(informers.Key{Cluster: logicalcluster.Of(cached), Name: cached.Name})
			}
		}
	})
}

// Changed implements runner.ObjectHandler.
func (p *Published) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	for _, local := range p.offer.in.Set.ClusterCachedResources.Local(logicalcluster.Of(obj)) {
		p.enqueueIf(local, resource)
	}
}

// Deleted implements runner.ObjectHandler.
func (p *Published) Deleted(resource schema.GroupVersionResource, obj metav1.Object) {
	p.Changed(resource, obj)
}

// Relisted implements runner.ObjectHandler.
func (p *Published) Relisted(resource schema.GroupVersionResource) {
	for _, local := range p.offer.in.Set.ClusterCachedResources.Indexer().List() {
		p.enqueueIf(local, resource)
	}
}

func (p *Published) enqueueIf(obj any, resource schema.GroupVersionResource) {
	cached, ok := obj.(*cachev1alpha1.ClusterCachedResource)
	if ok && cached.Spec.Group == resource.Group && cached.Spec.Resource == resource.Resource {
		p.controller.EnqueueAfter(informers.Key{Cluster: logicalcluster.Of(cached), Name: cached.Name}, publishInterval)
	}
}

// compared enqueues everything after a comparison, in which the cache server had these selections.
func (p *Published) compared(found map[informers.Key]selection) {
	p.mu.Lock()
	for key, s := range found {
		if p.states[key] == nil && s != (selection{}) {
			p.states[key] = newPublication(s)
		}
	}
	for key := range p.states {
		p.controller.Enqueue(key)
	}
	p.mu.Unlock()
	for _, local := range p.offer.in.Set.ClusterCachedResources.Indexer().List() {
		if key, err := informers.KeyOf(local); err == nil {
			p.controller.Enqueue(key)
		}
	}
}

func newPublication(s selection) *publication {
	return &publication{selection: s, known: map[id]*entry{}, kind: &kind{resource: s.offered(), name: s.resource.Resource, rank: rankContent}}
}

// reconcile makes the cache server have what a ClusterCachedResource publishes.
func (p *Published) reconcile(ctx context.Context, key informers.Key) error {
	o := p.offer
	o.comparing.RLock()
	defer o.comparing.RUnlock()
	if !o.connected {
		return nil
	}
	err := p.publish(ctx, key, p.wanted(key))
	if err != nil {
		o.in.Metrics.failed()
		if isUnavailable(err) {
			o.wake()
		}
	}
	return err
}

// wanted returns the selection of a ClusterCachedResource of a cluster that this shard has.
func (p *Published) wanted(key informers.Key) selection {
	set := p.offer.in.Set
	if _, err := set.LogicalClusters.GetLocal(key.Cluster, "", corev1alpha1.LogicalClusterName); err != nil || key.Cluster.IsSystem() {
		return selection{}
	}
	cached, err := set.ClusterCachedResources.GetLocal(key.Cluster, "", key.Name)
	if err != nil {
		return selection{}
	}
	return activeSelection(cached)
}

func (p *Published) publish(ctx context.Context, key informers.Key, want selection) error {
	p.mu.Lock()
	state := p.states[key]
	p.mu.Unlock()
	if state != nil && (want == (selection{}) || state.selection.offered() != want.offered()) {
		if err := p.withdraw(ctx, key, state); err != nil {
			return err
		}
		state = nil
	}
	if want == (selection{}) {
		return nil
	}
	if state == nil {
		state = newPublication(want)
	}
	state.selection = want
	if err := p.read(ctx, key, state); err != nil {
		return err
	}
	excess, err := p.write(ctx, key, state)
	p.set(key, state, excess)
	return err
}

// read reads what the cache server has, once after every comparison.
func (p *Published) read(ctx context.Context, key informers.Key, state *publication) error {
	if state.comparison == p.offer.comparisons {
		return nil
	}
	clear(state.known)
	err := p.offer.cache.list(ctx, p.offer.in.Shard, state.kind.resource, key.Cluster, func(u *unstructured.Unstructured) {
		state.known[id{state.kind, u.GetName()}] = entryOf(u)
	})
	if err == nil {
		state.comparison = p.offer.comparisons
	}
	return err
}

// withdraw removes everything of a publication from the cache server.
func (p *Published) withdraw(ctx context.Context, key informers.Key, state *publication) error {
	if err := p.read(ctx, key, state); err != nil {
		return err
	}
	w := &writer{Offer: p.offer, cluster: key.Cluster, known: state.known, failed: map[rank]bool{}}
	for i := range state.known {
		w.do(i.kind, w.remove(ctx, i))
	}
	if err := w.err(); err != nil {
		p.set(key, state, 0)
		return err
	}
	p.set(key, nil, 0)
	return nil
}

// write writes the differences, and returns how many objects are over the limits.
func (p *Published) write(ctx context.Context, key informers.Key, state *publication) (excess int, err error) {
	w := &writer{Offer: p.offer, cluster: key.Cluster, known: state.known, failed: map[rank]bool{}}
	limit, within := meter{limits: p.offer.in.Limits}, map[id]bool{}
	err = p.each(ctx, key.Cluster, state.selection, func(u *unstructured.Unstructured) {
		it, err := p.offer.itemOf(state.known, state.kind, u, nil)
		switch {
		case err != nil:
			w.do(state.kind, err)
		case limit.isFull() || !limit.add(it.size):
			excess++
		default:
			within[it.id] = true
			w.do(state.kind, w.put(ctx, it, u))
		}
	})
	if err != nil {
		return excess, err
	}
	for i := range state.known {
		if !within[i] {
			w.do(i.kind, w.remove(ctx, i))
		}
	}
	return excess, w.err()
}

// each calls do with every selected object, page by page.
func (p *Published) each(ctx context.Context, cluster logicalcluster.Name, s selection, do func(*unstructured.Unstructured)) error {
	options := metav1.ListOptions{Limit: publishPage, LabelSelector: s.selector}
	for {
		list, err := p.offer.in.Dynamic.Resource(s.resource).List(logicalcluster.WithName(ctx, cluster), options)
		if err != nil {
			return fmt.Errorf("listing the published %s of logical cluster %s: %w", s.resource.GroupResource(), cluster, err)
		}
		for n := range list.Items {
			if u := &list.Items[n]; !isGone(u) {
				u.SetGroupVersionKind(s.resource.GroupVersion().WithKind(u.GetKind()))
				do(u)
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// set records the state of a ClusterCachedResource; nil for none.
func (p *Published) set(key informers.Key, state *publication, excess int) {
	p.mu.Lock()
	before := 0
	if old := p.states[key]; old != nil {
		before = old.count
	}
	after := 0
	if state == nil {
		delete(p.states, key)
	} else {
		after = len(state.known)
		state.count, state.excess = after, excess
		p.states[key] = state
	}
	p.mu.Unlock()
	if before != after {
		p.counted(key)
	}
}
