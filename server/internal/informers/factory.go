package informers

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Factory hands out one informer per resource, shared by everything in the process.
type Factory struct {
	config *rest.Config
	scheme *runtime.Scheme
	codecs serializer.CodecFactory

	mu        sync.Mutex
	sources   map[schema.GroupVersionResource]Source
	informers map[schema.GroupVersionResource]*Informer
	started   map[schema.GroupVersionResource]bool
	running   sync.WaitGroup

	acknowledged func(schema.GroupResource) Acknowledged
}

// NewFactory returns a factory whose informers read from base, the bare server as a privileged user, and decode the
// types of scheme.
func NewFactory(base *rest.Config, scheme *runtime.Scheme) *Factory {
	return &Factory{
		config:    clusterclient.ForCluster(base, logicalcluster.Cluster{Wildcard: true}),
		scheme:    scheme,
		codecs:    serializer.NewCodecFactory(scheme),
		sources:   map[schema.GroupVersionResource]Source{},
		informers: map[schema.GroupVersionResource]*Informer{},
		started:   map[schema.GroupVersionResource]bool{},
	}
}

// Source is where the informer of a resource reads from instead of the server.
type Source struct {
	// ListerWatcher lists and watches all clusters.
	cache.ListerWatcher
	// Packed, unless it is nil, makes the informer one of NewPacked, with this transform.
	Packed func(runtime.Object)
}

// From makes the informer of a resource read from source.
func (f *Factory) From(resource schema.GroupVersionResource, source Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources[resource] = source
}

// Acknowledge makes Informer.Current of all informers wait for what acknowledged returns for their resources. It must be called before For.
func (f *Factory) Acknowledge(acknowledged func(schema.GroupResource) Acknowledged) {
	f.acknowledged = acknowledged
}

// For returns the informer of a resource; example is an empty object of its type. It runs from the next Start on.
func (f *Factory) For(resource schema.GroupVersionResource, example runtime.Object) (*Informer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.informers[resource]; ok {
		return i, nil
	}
	i, err := f.make(resource, example)
	if err != nil {
		return nil, err
	}
	if f.acknowledged != nil {
		i.Acknowledge(f.acknowledged(resource.GroupResource()))
	}
	f.informers[resource] = i
	return i, nil
}

func (f *Factory) make(resource schema.GroupVersionResource, example runtime.Object) (*Informer, error) {
	if source, ok := f.sources[resource]; ok {
		if source.Packed != nil {
			return NewPacked(resource, example, source.ListerWatcher, source.Packed)
		}
		return New(resource, example, source.ListerWatcher, nil), nil
	}
	cfg := rest.CopyConfig(f.config)
	gv := resource.GroupVersion()
	cfg.GroupVersion = &gv
	cfg.NegotiatedSerializer = f.codecs.WithoutConversion()
	cfg.APIPath = "/apis"
	if resource.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.QPS = -1
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", resource, err)
	}
	lw := cache.NewListWatchFromClient(client, resource.Resource, metav1.NamespaceAll, fields.Everything())
	return New(resource, example, lw, nil), nil
}

// Existing returns the informer of a resource if anybody has asked for it.
func (f *Factory) Existing(resource schema.GroupVersionResource) (*Informer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.informers[resource]
	return i, ok
}

// Start runs every informer that does not run yet, until ctx ends.
func (f *Factory) Start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, i := range f.informers {
		if f.started[r] {
			continue
		}
		f.started[r] = true
		f.running.Go(func() { i.Run(ctx) })
	}
}

// WaitForSync returns when every informer handed out so far is filled, or with the error of ctx.
func (f *Factory) WaitForSync(ctx context.Context) error {
	f.mu.Lock()
	all := make([]*Informer, 0, len(f.informers))
	for _, i := range f.informers {
		all = append(all, i)
	}
	f.mu.Unlock()
	for _, i := range all {
		select {
		case <-i.Synced():
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of all clusters: %w", i.resource.GroupResource(), ctx.Err())
		}
	}
	return nil
}

// Wait returns when the informers have ended after their context did.
func (f *Factory) Wait() { f.running.Wait() }
