// Package namespace empties and removes the namespaces that are deleted, in every logical cluster.
package namespace

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// Resources tells what the logical cluster of a context serves.
type Resources func(ctx context.Context) ([]discovery.Resource, error)

// Held returns of which resources the logical cluster of a context stores anything, in a namespace or in all of them.
type Held func(ctx context.Context, resources []schema.GroupResource, namespace string) ([]schema.GroupResource, error)

// New returns the controller. Clients reach the cluster in each call's context.
func New(set *informers.Set, kube kubernetes.Interface, meta metadata.Interface, resources Resources, held Held) *runner.Controller {
	var c *runner.Controller
	c = runner.New("namespace", 8, func(ctx context.Context, key informers.Key) error {
		namespace, err := set.Namespaces.Get(key.Cluster, "", key.Name)
		if err != nil || namespace.DeletionTimestamp == nil {
			return runner.IgnoreNotFound(err)
		}
		asked := false
		discover := func() ([]*metav1.APIResourceList, error) {
			if !asked { // to learn what cannot be deleted; without an answer it would end the process
				asked = true
				return []*metav1.APIResourceList{{GroupVersion: "v1"}}, nil
			}
			return namespaced(ctx, resources, held, key.Name)
		}
		deleter := deletion.NewNamespacedResourcesDeleter(ctx, kube.CoreV1().Namespaces(), meta, kube.CoreV1(), discover,
			corev1.FinalizerKubernetes)
		err = deleter.Delete(ctx, key.Name)
		var remaining *deletion.ResourcesRemainingError
		if errors.As(err, &remaining) {
			c.EnqueueAfter(key, time.Duration(remaining.Estimate/2+1)*time.Second)
			return nil
		}
		return err
	})
	c.Watch(set.Namespaces.Informer)
	return c
}

// namespaced lists the resources that are in a namespace of the context's cluster. Nothing is added to it any more.
func namespaced(ctx context.Context, resources Resources, held Held, name string) ([]*metav1.APIResourceList, error) {
	served, err := resources(ctx)
	if err != nil {
		return nil, err
	}
	var candidates []schema.GroupResource
	for _, r := range served {
		if r.Namespaced {
			candidates = append(candidates, r.GroupResource())
		}
	}
	found, err := held(ctx, candidates, name)
	if err != nil {
		return nil, err
	}
	var lists []*metav1.APIResourceList
	for _, r := range served {
		if !r.Namespaced || !slices.Contains(found, r.GroupResource()) {
			continue
		}
		lists = append(lists, &metav1.APIResourceList{
			GroupVersion: r.GroupVersion().String(),
			APIResources: []metav1.APIResource{{Name: r.Resource, Kind: r.Kind, Namespaced: true, Verbs: r.Verbs.UnsortedList()}},
		})
	}
	return lists, nil
}
