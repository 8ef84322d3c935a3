package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/process/coalesce"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

// mostClients is the number of clients in memory, for the most recently used URLs.
const mostClients = 64

// Config of Endpoints.
type Config struct {
	Allowed []Allowed
	// Files are the certificates for calling the virtual workspaces.
	Files outbound.Files
	// Is reports whether a workspace, by its path or the name of its logical cluster, has a logical cluster. It must not trust a path that
	// another shard has written.
	Is func(workspace string, cluster logicalcluster.Name) bool
	// Exports returns the exports of a logical cluster of this shard.
	Exports func(cluster logicalcluster.Name) ([]*apisv1alpha2.APIExport, error)
	// IsVirtual reports whether the objects of a resource of a cluster are not stored there. A slice must not be such an
	// object, because resolving it could refer to itself.
	IsVirtual func(cluster logicalcluster.Name, resource schema.GroupResource) bool
	// ShardLabels returns the labels of this shard.
	ShardLabels func() labels.Set
	// Dynamic reads objects, and RESTMapper maps their kinds to resources, in the logical cluster of a context.
	Dynamic    dynamic.Interface
	RESTMapper func(context.Context) (meta.RESTMapper, error)
	// Elsewhere reads the slices of providers on other shards. It is nil for a single shard.
	Elsewhere *Elsewhere
}

// Endpoints resolves endpoint slices to virtual workspaces.
type Endpoints struct {
	config    Config
	transport http.RoundTripper
	streams   streams
	clients   *lru.Cache // of dynamic.Interface, by URL
	// answers are those of other shards, by question, and asking the questions without an answer yet. poll is pollInterval.
	answers *cache.LRUExpireCache
	asking  *coalesce.Group[string, Answer]
	poll    time.Duration
}

// New returns Endpoints. They connect only to URLs in Allowed.
func New(config Config) (*Endpoints, error) {
	tlsConfig, err := config.Files.TLS()
	if err != nil {
		return nil, err
	}
	return &Endpoints{
		config: config, transport: newTransport(tlsConfig), streams: newStreams(tlsConfig), clients: lru.New(mostClients),
		answers: cache.NewLRUExpireCache(maxAnswers), poll: pollInterval,
		asking: coalesce.New[string](func(_ Answer, err error) bool { return err == nil }),
	}, nil
}

// slice returns a client that reads an endpoint slice of a cluster, with its context.
func (e *Endpoints) slice(ctx context.Context, cluster logicalcluster.Name, reference corev1.TypedLocalObjectReference) (context.Context,
	dynamic.ResourceInterface, error) {
	ctx = logicalcluster.WithName(ctx, cluster)
	mapper, err := e.config.RESTMapper(ctx)
	if err != nil {
		return nil, nil, err
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: ptr.Deref(reference.APIGroup, ""), Kind: reference.Kind})
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, err
	}
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot || e.config.IsVirtual(cluster, mapping.Resource.GroupResource()) {
		return nil, nil, invalidReference(reference.Kind)
	}
	return ctx, e.config.Dynamic.Resource(mapping.Resource), nil
}

// invalidReference is the error of a reference that cannot name an endpoint slice, because of its kind.
type invalidReference string

func (i invalidReference) Error() string {
	return fmt.Sprintf("its virtual storage refers to kind %s, but no stored cluster-scoped resource has this kind", string(i))
}

// URL returns the URL of the virtual workspace in an endpoint slice in the cluster of a provider, and whether consumers may delete objects
// there. The error is for consumers: it contains nothing from the slice.
func (e *Endpoints) URL(ctx context.Context, cluster logicalcluster.Name, reference corev1.TypedLocalObjectReference) (at *url.URL,
	deletes bool, err error) {
	found, err := e.read(ctx, Question{cluster, reference})
	if err != nil {
		return nil, false, err
	}
	if found.Version == "" {
		return nil, false, fmt.Errorf("its virtual storage refers to %s %s, which does not exist or has no URL for this "+
			"shard", reference.Kind, reference.Name)
	}
	chosen, err := choose(found.Endpoints, e.config.ShardLabels(), func(u *url.URL) bool { return e.permits(cluster, u) })
	if err != nil {
		return nil, false, fmt.Errorf("the URL of its virtual storage, %s %s, cannot be used: %w", reference.Kind, reference.Name, err)
	}
	return chosen.URL, chosen.deletes, nil
}

// permits reports whether exports of a cluster may refer to a URL.
func (e *Endpoints) permits(cluster logicalcluster.Name, u *url.URL) bool {
	return slices.ContainsFunc(e.config.Allowed, func(a Allowed) bool { return a.permits(u) && e.config.Is(a.Workspace, cluster) })
}

// mayPermit reports whether exports of a cluster may refer to any URL.
func (e *Endpoints) mayPermit(cluster logicalcluster.Name) bool {
	return slices.ContainsFunc(e.config.Allowed, func(a Allowed) bool { return e.config.Is(a.Workspace, cluster) })
}

// Changed returns a channel that is closed when the endpoint slice changes, or can no longer be watched.
func (e *Endpoints) Changed(ctx context.Context, cluster logicalcluster.Name,
	reference corev1.TypedLocalObjectReference) (<-chan struct{}, error) {
	if shard, err := e.holder(ctx, cluster); err != nil {
		return nil, err
	} else if shard != "" {
		return e.changedElsewhere(ctx, Question{cluster, reference})
	}
	ctx, stored, err := e.slice(ctx, cluster, reference)
	if err != nil {
		return nil, err
	}
	w, err := stored.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + reference.Name})
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		defer w.Stop()
		for first := true; ; first = false {
			event, ok := <-w.ResultChan()
			if !ok || !first || event.Type != watch.Added {
				return
			}
		}
	}()
	return changed, nil
}

// Options returns the storage of a resource in the virtual workspace at a URL, in the logical cluster of each
// context.
func (e *Endpoints) Options(at *url.URL, resource schema.GroupVersionResource) (generic.RESTOptionsGetter, error) {
	in, err := e.objects(at, resource)
	if err != nil {
		return nil, err
	}
	return resources.Options(func(_ context.Context, namespace string) (resources.Objects, error) { return in(namespace), nil }), nil
}

// Objects returns the objects of a resource in the virtual workspace at a URL, by namespace.
func (e *Endpoints) Objects(at *url.URL, resource schema.GroupVersionResource) (func(string) customresources.Objects, error) {
	in, err := e.objects(at, resource)
	return func(namespace string) customresources.Objects { return in(namespace) }, err
}

// objects is Objects with all methods.
func (e *Endpoints) objects(at *url.URL, resource schema.GroupVersionResource) (func(namespace string) resources.Objects, error) {
	client, err := e.client(at)
	return func(namespace string) resources.Objects {
		return objects{client.Resource(resource).Namespace(namespace)}
	}, err
}

func (e *Endpoints) client(at *url.URL) (dynamic.Interface, error) {
	if found, ok := e.clients.Get(at.String()); ok {
		return found.(dynamic.Interface), nil
	}
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "https://" + at.Host, QPS: -1}, &http.Client{
		Transport:     leading{path: at.Path, next: e.transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	})
	if err != nil {
		return nil, err
	}
	e.clients.Add(at.String(), client)
	return client, nil
}

// objects are the objects of a virtual workspace with errors for consumers.
type objects struct{ dynamic.ResourceInterface }

// Get implements resources.Objects.
func (o objects) Get(ctx context.Context, name string, options metav1.GetOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	got, err := o.ResourceInterface.Get(ctx, name, options, subresources...)
	return got, consumerError(err)
}

// List implements resources.Objects.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := o.ResourceInterface.List(ctx, options)
	return list, consumerError(err)
}

// Watch implements resources.Objects.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := o.ResourceInterface.Watch(ctx, options)
	if err != nil {
		return nil, consumerError(err)
	}
	return watch.Filter(watching, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Error {
			return e, true
		}
		var status apierrors.APIStatus
		_ = errors.As(consumerError(apierrors.FromObject(e.Object)), &status)
		s := status.Status()
		return watch.Event{Type: watch.Error, Object: &s}, true
	}), nil
}

// Delete implements resources.Objects.
func (o objects) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	err := o.ResourceInterface.Delete(ctx, name, options, subresources...)
	if apierrors.IsConflict(err) || (apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, virtual.CauseDeletionRefused)) {
		return err
	}
	return consumerError(err)
}

// consumerError converts an error of a virtual workspace to the error for consumers.
func consumerError(err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsBadRequest(err),
		apierrors.IsTooManyRequests(err):
		return err
	}
	// With this cause, the message is not that of the virtual workspace, but of something in front of it.
	if apierrors.IsServiceUnavailable(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	return apierrors.NewServiceUnavailable(errUnexpected.Error())
}
