package feed

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
)

const (
	asObjects = runtime.ContentTypeJSON
	// Metadata only, as of the API conventions. Errors are plain JSON.
	asMetadata      = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	asMetadataEvent = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// readClient reads the part of the cache server of any shard.
type readClient struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
}

// newReadClient returns a client. It calls replaced when another instance of the cache server responds than before.
func newReadClient(config *rest.Config, replaced func()) (*readClient, error) {
	types, err := readTypes()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server limits each shard
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &instances{RoundTripper: next, replaced: replaced}
	})
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the cache server: %w", err)
	}
	return &readClient{client, runtime.NewParameterCodec(types)}, nil
}

// instances observes the instance of the cache server that responds.
type instances struct {
	http.RoundTripper
	replaced func()

	mu   sync.Mutex
	last string
}

// RoundTrip implements http.RoundTripper.
func (i *instances) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if instance := response.Header.Get(cacheserver.InstanceHeader); instance != "" {
		i.mu.Lock()
		before := i.last
		i.last = instance
		i.mu.Unlock()
		if before != "" && before != instance {
			i.replaced()
		}
	}
	return response, nil
}

// get returns a request for a resource. shard and cluster may be *.
func (c *readClient) get(shard, cluster string, resource schema.GroupVersionResource, options metav1.ListOptions) *rest.Request {
	path := []string{"shards", shard, "clusters", cluster, "apis", resource.Group, resource.Version, resource.Resource}
	return c.rest.Get().AbsPath(path...).SpecificallyVersionedParams(&options, c.codec, metav1.Unversioned)
}

// all lists and watches a resource of all shards: its objects, or their metadata only.
func (c *readClient) all(resource schema.GroupVersionResource, metadataOnly bool, newList func() runtime.Object) cache.ListerWatcher {
	list, event := asObjects, asObjects
	if metadataOnly {
		list, event = asMetadata, asMetadataEvent
		newList = func() runtime.Object { return &metav1.PartialObjectMetadataList{} }
	}
	return informers.PagedList{ListerWatcher: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			into := newList()
			return into, c.get("*", "*", resource, options).SetHeader("Accept", list).Do(ctx).Into(into)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return c.get("*", "*", resource, options).SetHeader("Accept", event).Watch(ctx)
		},
	}}
}
