package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// pageSize is how many objects are read at a time. The cache server may return fewer.
const pageSize = 250

// Client reads and writes the objects of one shard in the cache server.
type Client struct {
	shard string
	rest  rest.Interface

	mu       sync.Mutex
	instance string // of the last response
}

// leader is the process of this shard that sends a request for what the shard offers.
type leader struct {
	incarnation string
	term, round uint64
}

// in adds the headers with which the cache server refuses the requests of former leaders, and of former rounds of the leader.
func (l leader) in(r *rest.Request) *rest.Request {
	return r.SetHeader(cacheserver.IncarnationHeader, l.incarnation).
		SetHeader(cacheserver.LeaderTermHeader, strconv.FormatUint(l.term, 10)).
		SetHeader(cacheserver.LeaderRoundHeader, strconv.FormatUint(l.round, 10))
}

// NewClient returns a client for what a shard writes. config has the URL of the cache server, which ends in /services/cache, and the
// certificate of the shard.
func NewClient(config *rest.Config, shard string) (*Client, error) {
	c := &Client{shard: shard}
	config = rest.CopyConfig(config)
	config.QPS = -1
	types := runtime.NewScheme()
	metav1.AddToGroupVersion(types, metav1.Unversioned)
	if err := corev1alpha1.AddToScheme(types); err != nil {
		return nil, err
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observed{next, c.observe} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the cache server: %w", err)
	}
	c.rest = client
	return c, nil
}

// observed passes on the instance of every response.
type observed struct {
	http.RoundTripper
	observe func(instance string)
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		o.observe(response.Header.Get(cacheserver.InstanceHeader))
	}
	return response, err
}

func (c *Client) observe(instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instance = instance
}

// Instance returns the instance of the cache server that responded last.
func (c *Client) Instance() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instance
}

// path returns the path of a resource in a cluster, which may be *.
func (c *Client) path(shard string, resource schema.GroupVersionResource, cluster logicalcluster.Name) []string {
	api := []string{"apis", resource.Group, resource.Version}
	if resource.Group == "" {
		api = []string{"api", resource.Version}
	}
	return append(append([]string{"shards", shard, "clusters", string(cluster)}, api...), resource.Resource)
}

// ping returns an error if the cache server does not respond, or refuses this shard.
func (c *Client) ping(ctx context.Context, resource schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := c.rest.Get().AbsPath(c.path(c.shard, resource, "*")...).Param("limit", "1").Do(ctx).Raw()
	return err
}

// create stores an object, and returns it as the server has it.
func (c *Client) create(ctx context.Context, l leader, cluster logicalcluster.Name, i id,
	content map[string]any) (*metav1.ObjectMeta, error) {
	return c.write(ctx, l, c.rest.Post().AbsPath(c.path(c.shard, i.kind.resource, cluster)...), content)
}

// update replaces the state of an object that content names by its UID and its resource version.
func (c *Client) update(ctx context.Context, l leader, cluster logicalcluster.Name, i id,
	content map[string]any) (*metav1.ObjectMeta, error) {
	return c.write(ctx, l, c.rest.Put().AbsPath(append(c.path(c.shard, i.kind.resource, cluster), i.name)...), content)
}

func (c *Client) write(ctx context.Context, l leader, r *rest.Request, content map[string]any) (*metav1.ObjectMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	data, err := l.in(r).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	stored := metav1.PartialObjectMetadata{}
	return &stored.ObjectMeta, json.Unmarshal(data, &stored)
}

// get returns an object, or a NotFound error.
func (c *Client) get(ctx context.Context, cluster logicalcluster.Name, i id) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err := c.rest.Get().AbsPath(append(c.path(c.shard, i.kind.resource, cluster), i.name)...).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(data)
}

// delete removes an object in one state. It succeeds if the object does not exist.
func (c *Client) delete(ctx context.Context, l leader, cluster logicalcluster.Name, i id, uid types.UID, version string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err != nil {
		return err
	}
	err = l.in(c.rest.Delete()).AbsPath(append(c.path(c.shard, i.kind.resource, cluster), i.name)...).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// begin makes the cache server refuse the requests of former leaders and rounds, also those that are on their way. What is read after it
// stays as it is until l writes.
func (c *Client) begin(ctx context.Context, l leader, resource schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.in(c.rest.Get()).AbsPath(c.path(c.shard, resource, "*")...).Param("limit", "1").Do(ctx).Error(); err != nil {
		return fmt.Errorf("becoming the only writer in the cache server: %w", err)
	}
	return nil
}

// list calls each for the objects of a cluster, or of all, page by page.
func (c *Client) list(ctx context.Context, shard string, resource schema.GroupVersionResource, cluster logicalcluster.Name,
	each func(*unstructured.Unstructured)) error {
	token := ""
	for {
		page, err := c.page(ctx, c.path(shard, resource, cluster), token)
		if err != nil {
			return fmt.Errorf("listing %s in the cache server: %w", resource.GroupResource(), err)
		}
		for n := range page.Items {
			each(&page.Items[n])
		}
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}

func (c *Client) page(ctx context.Context, path []string, token string) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*patience)
	defer cancel()
	r := c.rest.Get().AbsPath(path...).Param("limit", fmt.Sprint(pageSize))
	if token != "" {
		r = r.Param("continue", token)
	}
	data, err := r.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	return list, list.UnmarshalJSON(data)
}

// ofAllShards returns a request for the objects of all shards and clusters.
func (c *Client) ofAllShards(resource schema.GroupVersionResource, options metav1.ListOptions) *rest.Request {
	return c.rest.Get().AbsPath(c.path("*", resource, "*")...).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.Unversioned)
}

// isUnavailable reports whether an error concerns the cache server and not one object.
func isUnavailable(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsUnauthorized(err)
}

// isRefusal reports whether the cache server has refused a write: it is not made later either.
func isRefusal(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code >= 400 && s.Status().Code < 500
}
