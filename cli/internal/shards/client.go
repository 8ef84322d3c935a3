package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// page is how many objects one request lists.
const page = 500

// Client reads and repairs what shards hold, as an administrator of all of them.
type Client struct {
	config *rest.Config
	scheme *runtime.Scheme
	// urls are the URLs of the shards.
	urls map[string]string
	// Quarantined are the shards whose stores were restored.
	Quarantined []string
}

// Connect reads the Shards of an installation from its root shard, whose URL config has. The credentials of config are used at every shard.
func Connect(ctx context.Context, config *rest.Config) (*Client, error) {
	c := &Client{config: rest.CopyConfig(config), scheme: runtime.NewScheme(), urls: map[string]string{}}
	c.config.QPS = -1 // the server has its own fairness between users
	for _, add := range []func(*runtime.Scheme) error{corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme} {
		if err := add(c.scheme); err != nil {
			return nil, err
		}
	}
	host, _, _ := strings.Cut(config.Host, "/clusters/")
	c.urls[rootShard] = host
	all := &corev1alpha1.ShardList{}
	core, err := c.in(rootShard, root, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	if err := core.Get().Resource("shards").Do(ctx).Into(all); err != nil {
		return nil, fmt.Errorf("listing the shards of the installation: %w; use the URL of the root shard, as an administrator", err)
	}
	for _, s := range all.Items {
		c.urls[s.Name] = s.Spec.BaseURL
		if s.Annotations[corev1alpha1.QuarantineAnnotation] != "" {
			c.Quarantined = append(c.Quarantined, s.Name)
		}
	}
	return c, nil
}

// in returns a client for an API in a logical cluster at a shard; * stands for all.
func (c *Client) in(shard, cluster string, group schema.GroupVersion) (*rest.RESTClient, error) {
	url, known := c.urls[shard]
	if !known {
		return nil, fmt.Errorf("there is no shard %q", shard)
	}
	config := rest.CopyConfig(c.config)
	config.Host, config.APIPath, config.GroupVersion = url+"/clusters/"+cluster, "/apis", &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(c.scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.RESTClientFor(config)
}

// Check returns what is wrong. What changes while it reads is not: a finding counts if it is there twice.
func (c *Client) Check(ctx context.Context) []Finding {
	found := Compare(c.read(ctx))
	if !slices.ContainsFunc(found, func(f Finding) bool { return !f.Kind.isUnread() }) {
		return found
	}
	return slices.DeleteFunc(Compare(c.read(ctx)), func(second Finding) bool {
		return !slices.ContainsFunc(found, func(first Finding) bool {
			return first.Kind == second.Kind && first.Cluster == second.Cluster && first.Shard == second.Shard && first.Workspace == second.Workspace
		})
	})
}

// read reads all shards at the same time.
func (c *Client) read(ctx context.Context) State {
	s := State{Unread: map[string]error{}, Known: map[string]bool{}}
	var mu sync.Mutex
	var reading sync.WaitGroup
	for shard := range c.urls {
		s.Known[shard] = true
		reading.Go(func() {
			held, records, err := c.readShard(ctx, shard)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Unread[shard] = err
				return
			}
			s.Held, s.Records = append(s.Held, held...), append(s.Records, records...)
		})
	}
	reading.Wait()
	return s
}

func (c *Client) readShard(ctx context.Context, shard string) (held []Held, records []Record, err error) {
	core, err := c.in(shard, "*", corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	tenancy, err := c.in(shard, "*", tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	err = pages(ctx, core, "logicalclusters", func(l *corev1alpha1.LogicalClusterList) {
		for i := range l.Items {
			held = append(held, heldOf(shard, &l.Items[i]))
		}
	})
	if err != nil {
		return nil, nil, err
	}
	err = pages(ctx, tenancy, "workspaces", func(l *tenancyv1alpha1.WorkspaceList) {
		for i := range l.Items {
			if r, ok := recordOf(shard, &l.Items[i]); ok {
				records = append(records, r)
			}
		}
	})
	return held, records, err
}

// list is a list of objects, of type T.
type list[T any] interface {
	*T
	runtime.Object
	metav1.ListInterface
}

// pages lists all objects of a resource page by page.
func pages[T any, L list[T]](ctx context.Context, client rest.Interface, resource string, each func(L)) error {
	for next := ""; ; {
		into := L(new(T))
		request := client.Get().Resource(resource).Param("limit", fmt.Sprint(page))
		if next != "" {
			request = request.Param("continue", next)
		}
		if err := request.Do(ctx).Into(into); err != nil {
			return err
		}
		each(into)
		if next = into.GetContinue(); next == "" {
			return nil
		}
	}
}

// Trust ends the quarantine of all shards.
func (c *Client) Trust(ctx context.Context) error {
	core, err := c.in(rootShard, root, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	without := map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1alpha1.QuarantineAnnotation: nil}}}
	for _, shard := range c.Quarantined {
		if err := patch(ctx, core, "shards", shard, without); err != nil {
			return fmt.Errorf("ending the quarantine of shard %q: %w", shard, err)
		}
	}
	return nil
}

func patch(ctx context.Context, client rest.Interface, resource, name string, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return client.Patch(types.MergePatchType).Resource(resource).Name(name).Body(body).Do(ctx).Error()
}
