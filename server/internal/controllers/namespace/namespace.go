// Package namespace deletes the content of namespaces that are being deleted, and then the namespaces, in every logical cluster.
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

// Inputs of the controller. Clients and functions reach the cluster in each call's context.
type Inputs struct {
	Set      *informers.Set
	Kube     kubernetes.Interface
	Metadata metadata.Interface
	// Resources returns the resources that the cluster serves.
	Resources func(ctx context.Context) ([]discovery.Resource, error)
	// Held returns those of the resources of which the cluster stores objects, in a namespace or in all namespaces.
	Held func(ctx context.Context, resources []schema.GroupResource, namespace string) ([]schema.GroupResource, error)
}

type reconciler struct {
	Inputs
	controller *runner.Controller
}

// New returns the controller. Its keys are namespaces.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	r.controller = runner.New("namespace", 8, r.reconcile)
	r.controller.Watch(in.Set.Namespaces.Informer)
	return r.controller
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	namespace, err := r.Set.Namespaces.Get(key.Cluster, "", key.Name)
	if err != nil || namespace.DeletionTimestamp == nil {
		return runner.IgnoreNotFound(err)
	}
	first := true
	discover := func() ([]*metav1.APIResourceList, error) {
		if first { // the constructor looks for resources that cannot be deleted, and ends the process if that fails
			first = false
			return []*metav1.APIResourceList{{GroupVersion: "v1"}}, nil
		}
		return r.namespaced(ctx, key.Name)
	}
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, r.Kube.CoreV1().Namespaces(), r.Metadata, r.Kube.CoreV1(), discover,
		corev1.FinalizerKubernetes)
	err = deleter.Delete(ctx, key.Name)
	var remaining *deletion.ResourcesRemainingError
	if errors.As(err, &remaining) {
		r.controller.EnqueueAfter(key, time.Duration(remaining.Estimate/2+1)*time.Second)
		return nil
	}
	return err
}

// namespaced lists the resources of the objects in a namespace of the cluster of ctx, to which no objects are added any more.
func (r *reconciler) namespaced(ctx context.Context, name string) ([]*metav1.APIResourceList, error) {
	served, err := r.Resources(ctx)
	if err != nil {
		return nil, err
	}
	var candidates []schema.GroupResource
	for _, s := range served {
		if s.Namespaced {
			candidates = append(candidates, s.GroupResource())
		}
	}
	found, err := r.Held(ctx, candidates, name)
	if err != nil {
		return nil, err
	}
	var lists []*metav1.APIResourceList
	for _, s := range served {
		if !s.Namespaced || !slices.Contains(found, s.GroupResource()) {
			continue
		}
		lists = append(lists, &metav1.APIResourceList{
			GroupVersion: s.GroupVersion().String(),
			APIResources: []metav1.APIResource{{Name: s.Resource, Kind: s.Kind, Namespaced: true, Verbs: s.Verbs.UnsortedList()}},
		})
	}
	return lists, nil
}
