package admission

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxParams bounds how many parameters one binding may select.
const maxParams = 500

// paramInformer reads the parameters of policies when they are asked for, in the form that upstream expects: nothing is
// kept, because a resource would have to be watched for the sake of a few objects of one cluster.
type paramInformer struct {
	client    dynamic.Interface
	cluster   logicalcluster.Name
	resource  schema.GroupVersionResource
	namespace string
}

var _ kubeinformers.GenericInformer = paramInformer{}

// Informer implements the upstream interface: it has always synced.
func (p paramInformer) Informer() cache.SharedIndexInformer { return syncedInformer{} }

// Lister implements the upstream interface.
func (p paramInformer) Lister() cache.GenericLister { return p }

// ByNamespace implements the upstream interface.
func (p paramInformer) ByNamespace(namespace string) cache.GenericNamespaceLister {
	p.namespace = namespace
	return p
}

// List implements the upstream interface.
func (p paramInformer) List(selector labels.Selector) ([]runtime.Object, error) {
	list, err := p.client.Resource(p.resource).Namespace(p.namespace).List(p.context(), metav1.ListOptions{LabelSelector: selector.String(), Limit: maxParams})
	if err != nil {
		return nil, err
	}
	params := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		params[i] = &list.Items[i]
	}
	return params, nil
}

// Get implements the upstream interface.
func (p paramInformer) Get(name string) (runtime.Object, error) {
	return p.client.Resource(p.resource).Namespace(p.namespace).Get(p.context(), name, metav1.GetOptions{})
}

// context stands in for the one that upstream's interface does not pass on.
func (p paramInformer) context() context.Context {
	return logicalcluster.WithName(context.Background(), p.cluster)
}

type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }
