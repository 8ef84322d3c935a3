package feed

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// absentGrace is how long an object stays that a list of the cache server does not have. Its shard compares everything that it offers with
// a new cache server, and every 10 minutes.
const absentGrace = 15 * time.Minute

// sweepInterval is how often absent objects are considered.
const sweepInterval = time.Minute

// ReaderInputs are the inputs of a Reader.
type ReaderInputs struct {
	// Set has the informers, and Elsewhere their stores of objects of other shards.
	Set       *informers.Set
	Elsewhere *informers.Elsewhere
	// Shard is the name of this shard, whose own objects in the cache server do not matter.
	Shard string
	// Cache has the URL of the cache server, which ends in /services/cache, and the certificate of this shard.
	Cache *rest.Config
	Clock clock.WithTicker
}

// Reader reads what other shards offer in the cache server. Every process of a shard runs one.
//
// Invariants:
//   - An object never replaces a newer one of the same incarnation of its shard: a cache server that was restored or replaced does not
//     bring back the past.
//   - Only an event of the deletion of an object removes it at once. What a list does not have stays for absentGrace, and longer if its
//     shard offers nothing at all: an empty cache server, or a silent shard, changes nothing.
//   - A shard that is registered with another store than the one that offered an object removes it only by not having it for absentGrace
//     after the registration. In this time, the shard offers all that its store has.
//   - The content of schemas is read for clusters that something here needs. Of the others, this shard does not keep schemas.
type Reader struct {
	in      ReaderInputs
	sources []*source
	schemas *schemas
	strings *interner

	mu sync.Mutex // guards what follows
	// kept are the clusters of which this shard had stored objects when it started.
	kept map[logicalcluster.Name]bool
	// adopted are the shards that were registered with another store, and when.
	adopted map[string]time.Time
}

// NewReader returns a Reader, which does nothing until Run.
func NewReader(in ReaderInputs) (*Reader, error) {
	r := &Reader{in: in, strings: newInterner(), kept: map[logicalcluster.Name]bool{}, adopted: map[string]time.Time{}}
	client, err := newReadClient(in.Cache, r.again)
	if err != nil {
		return nil, err
	}
	r.schemas = newSchemas(r, client)
	types, err := readTypes()
	if err != nil {
		return nil, err
	}
	kinds := map[schema.GroupVersionResource]informers.Kind{}
	for _, kind := range informers.Kinds() {
		kinds[kind.Resource] = kind
	}
	for _, i := range in.Elsewhere.Informers() {
		s := &source{reader: r, informer: i, client: client, listed: make(chan struct{}), shards: map[string]int{},
			current: in.Clock.Now()}
		s.example = kinds[i.Resource()].Example
		list := i.Resource().GroupVersion().WithKind(reflect.TypeOf(s.example).Elem().Name() + "List")
		if !types.Recognizes(list) {
			return nil, fmt.Errorf("readTypes lacks %s", list)
		}
		s.newList = func() runtime.Object {
			obj, _ := types.New(list) // it is known
			return obj
		}
		if i == in.Set.APIResourceSchemas.Informer {
			s.example = &metav1.PartialObjectMetadata{}
			s.schemas = r.schemas
		}
		r.sources = append(r.sources, s)
	}
	in.Set.Shards.AddHandlerForAll(r.shardChanged)
	return r, nil
}

// shardChanged reads everything again after a shard was registered with another store: what it offered before that was ignored.
func (r *Reader) shardChanged(old, obj runtime.Object) {
	before, _ := old.(*corev1alpha1.Shard)
	now, _ := obj.(*corev1alpha1.Shard)
	if before == nil || now == nil {
		return
	}
	was, is := before.Annotations[corev1alpha1.IncarnationAnnotation], now.Annotations[corev1alpha1.IncarnationAnnotation]
	if was == "" || was == is {
		return
	}
	r.mu.Lock()
	r.adopted[now.Name] = r.in.Clock.Now()
	r.mu.Unlock()
	r.again()
}

// again makes all sources list again: resource versions of another instance of the cache server mean nothing.
func (r *Reader) again() {
	for _, s := range r.sources {
		s.again()
	}
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range r.sources {
		running.Go(func() { s.run(ctx) })
	}
	running.Go(func() { r.schemas.run(ctx) })
	r.sweep(ctx)
	running.Wait()
}

// sweep removes absent objects until ctx ends.
func (r *Reader) sweep(ctx context.Context) {
	ticker := r.in.Clock.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		r.sweepOnce(r.in.Clock.Now())
	}
}

func (r *Reader) sweepOnce(now time.Time) {
	offering := map[string]bool{}
	for _, s := range r.sources {
		s.addShards(offering)
	}
	r.mu.Lock()
	adopted := maps.Clone(r.adopted)
	r.mu.Unlock()
	for _, s := range r.sources {
		s.sweep(now, offering, adopted)
	}
}

// Listed returns when everything that the cache server has is in the informers, or with the error of ctx.
func (r *Reader) Listed(ctx context.Context) error {
	for _, s := range r.sources {
		select {
		case <-s.listed:
		case <-ctx.Done():
			return fmt.Errorf("reading %s from the cache server: %w", s.informer.Resource().GroupResource(), ctx.Err())
		}
	}
	return nil
}

// Loaded reports whether this shard has everything that is offered of a cluster: either it had stored it, or it has read the whole content
// of the cache server since it started.
func (r *Reader) Loaded(cluster logicalcluster.Name) bool {
	r.mu.Lock()
	kept := r.kept[cluster]
	r.mu.Unlock()
	return kept || r.isListed()
}

// isListed reports whether everything that the cache server had was read.
func (r *Reader) isListed() bool {
	for _, s := range r.sources {
		select {
		case <-s.listed:
		default:
			return false
		}
	}
	return true
}

// Here reports whether this shard has a cluster.
func (r *Reader) Here(cluster logicalcluster.Name) bool {
	_, err := r.in.Set.LogicalClusters.GetLocal(cluster, "", corev1alpha1.LogicalClusterName)
	return err == nil || cluster.IsSystem()
}

// registered returns the incarnation with which a shard is registered in root; empty if that is not known.
func (r *Reader) registered(shard string) string {
	found, err := r.in.Set.Shards.Get(logicalcluster.Root, "", shard)
	if err != nil {
		return ""
	}
	return found.Annotations[corev1alpha1.IncarnationAnnotation]
}

// readTypes are the types of what is read.
func readTypes() (*runtime.Scheme, error) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		metav1.AddMetaToScheme, rbacv1.AddToScheme, admissionregistrationv1.AddToScheme, corev1alpha1.AddToScheme,
		tenancyv1alpha1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, cachev1alpha1.AddToScheme,
		migrationv1alpha1.AddToScheme,
	} {
		if err := add(types); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(types, metav1.Unversioned)
	return types, nil
}
