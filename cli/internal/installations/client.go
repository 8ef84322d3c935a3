// Package installations shows the state of installations of kcp that the operator runs, collects it for support, and checks a Kubernetes
// cluster before the operator is installed. It reads the cluster in which kcp runs, not kcp.
package installations

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// page is the number of objects in a page of a list.
const page = 500

// Client reads a Kubernetes cluster.
type Client struct {
	Objects   dynamic.Interface
	Discovery discovery.DiscoveryInterface
	// Logs returns the end of the log of a container.
	Logs func(ctx context.Context, namespace, pod, container string, previous bool, limit int64) ([]byte, error)
}

// New returns a client.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	core, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{Objects: objects, Discovery: known, Logs: logsOf(core)}, nil
}

// logsOf reads logs. The server counts a limit in bytes from the beginning, so the number of lines limits them first.
func logsOf(core rest.Interface) func(context.Context, string, string, string, bool, int64) ([]byte, error) {
	const bytesPerLine = 250 // a line of kcp is longer than the average
	return func(ctx context.Context, namespace, pod, container string, previous bool, limit int64) ([]byte, error) {
		return core.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").Param("container", container).
			Param("previous", strconv.FormatBool(previous)).Param("timestamps", "true").
			Param("tailLines", fmt.Sprint(max(limit/bytesPerLine, 1))).Param("limitBytes", fmt.Sprint(limit)).Do(ctx).Raw()
	}
}

// kinds are the resources of the operator, by kind.
var kinds = []struct{ kind, resource string }{
	{"RootShard", "rootshards"},
	{"Shard", "shards"},
	{"CacheServer", "cacheservers"},
	{"VirtualWorkspace", "virtualworkspaces"},
	{"FrontProxy", "frontproxies"},
	{"Kubeconfig", "kubeconfigs"},
	{"EtcdCluster", "etcdclusters"},
	{"EtcdBackup", "etcdbackups"},
	{"EtcdBackupSchedule", "etcdbackupschedules"},
}

// Objects are the objects of the operator in a namespace.
type Objects struct {
	RootShards        []v1alpha1.RootShard
	Shards            []v1alpha1.Shard
	CacheServers      []v1alpha1.CacheServer
	VirtualWorkspaces []v1alpha1.VirtualWorkspace
	FrontProxies      []v1alpha1.FrontProxy
	EtcdClusters      []v1alpha1.EtcdCluster
	Backups           []v1alpha1.EtcdBackup
	Schedules         []v1alpha1.EtcdBackupSchedule
}

// Read reads the objects of the operator in a namespace.
func (c *Client) Read(ctx context.Context, namespace string) (*Objects, error) {
	o := &Objects{}
	err := read(ctx, c, namespace, "rootshards", &o.RootShards)
	if apierrors.IsNotFound(err) { // the same is true of the other kinds
		return o, err
	}
	err = errors.Join(err, read(ctx, c, namespace, "shards", &o.Shards),
		read(ctx, c, namespace, "cacheservers", &o.CacheServers), read(ctx, c, namespace, "virtualworkspaces", &o.VirtualWorkspaces),
		read(ctx, c, namespace, "frontproxies", &o.FrontProxies), read(ctx, c, namespace, "etcdclusters", &o.EtcdClusters),
		read(ctx, c, namespace, "etcdbackups", &o.Backups), read(ctx, c, namespace, "etcdbackupschedules", &o.Schedules))
	return o, err
}

func read[T any](ctx context.Context, c *Client, namespace, resource string, into *[]T) error {
	items, err := c.list(ctx, v1alpha1.SchemeGroupVersion.WithResource(resource), namespace)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no %s of %s: use the kubeconfig of the cluster in which kcp runs, and install the operator: %w",
			resource, v1alpha1.SchemeGroupVersion, err)
	}
	if err != nil {
		return err
	}
	for i := range items {
		var object T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &object); err != nil {
			return fmt.Errorf("%s %s: %w", resource, items[i].GetName(), err)
		}
		*into = append(*into, object)
	}
	return nil
}

// list returns all objects of a resource in a namespace.
func (c *Client) list(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := c.Objects.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
		all = append(all, list.Items...)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// Names returns the names of the RootShards in a namespace.
func (c *Client) Names(ctx context.Context, namespace string) ([]string, error) {
	items, err := c.list(ctx, v1alpha1.SchemeGroupVersion.WithResource("rootshards"), namespace)
	var names []string
	for i := range items {
		names = append(names, items[i].GetName())
	}
	return names, err
}
