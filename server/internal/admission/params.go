package admission

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// maxParams is how many parameters one binding may select. firstParams is the size of the first page that is read.
	maxParams, firstParams = 500, 10
	// paramCost is the cost of reading a parameter, in addition to one for each byte.
	paramCost = 5000
)

// paramInformer reads the parameters of policies on demand, with the interface that upstream expects. It caches nothing: that would require
// to watch a whole resource for a few objects of one cluster.
type paramInformer struct {
	client    dynamic.Interface
	cluster   logicalcluster.Name
	resource  schema.GroupVersionResource
	namespace string
	// request is the context of the request that reads the parameters. Reading spends its budget.
	request context.Context
}

var _ kubeinformers.GenericInformer = paramInformer{}

// of returns a copy that reads for a request.
func (p paramInformer) of(request context.Context) paramInformer {
	p.request = request
	return p
}

// Informer implements the upstream interface. It is always synced.
func (p paramInformer) Informer() cache.SharedIndexInformer { return syncedInformer{} }

// Lister implements the upstream interface.
func (p paramInformer) Lister() cache.GenericLister { return p }

// ByNamespace implements the upstream interface.
func (p paramInformer) ByNamespace(namespace string) cache.GenericNamespaceLister {
	p.namespace = namespace
	return p
}

// List implements the upstream interface. The first page is small, because the size of the objects is unknown.
func (p paramInformer) List(selector labels.Selector) ([]runtime.Object, error) {
	var params []runtime.Object
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: firstParams}
	for {
		list, err := p.client.Resource(p.resource).Namespace(p.namespace).List(p.context(), options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if err := p.spend(&list.Items[i]); err != nil {
				return nil, err
			}
			params = append(params, &list.Items[i])
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return params, nil
		}
		if len(params) >= maxParams {
			return nil, fmt.Errorf("paramRef.selector of the binding selects more than %d objects: select fewer", maxParams)
		}
		options.Limit = min(2*options.Limit, maxParams-int64(len(params)))
	}
}

// Get implements the upstream interface.
func (p paramInformer) Get(name string) (runtime.Object, error) {
	param, err := p.client.Resource(p.resource).Namespace(p.namespace).Get(p.context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return param, p.spend(param)
}

// spend takes the cost of reading a parameter from the budget of the request.
func (p paramInformer) spend(param *unstructured.Unstructured) error {
	return expressions.Spend(p.request, paramCost+uint64(bytesIn(param.Object)))
}

// bytesIn returns the approximate size of a value in bytes.
func bytesIn(value any) int {
	n := 8
	switch v := value.(type) {
	case string:
		n += len(v)
	case map[string]any:
		for key, item := range v {
			n += len(key) + bytesIn(item)
		}
	case []any:
		for _, item := range v {
			n += bytesIn(item)
		}
	}
	return n
}

// context returns a context for reads in the cluster, because upstream's interface does not pass one. It ends with the request, and has
// none of its values.
func (p paramInformer) context() context.Context {
	return logicalcluster.WithName(ending{p.request}, p.cluster)
}

// ending is a context that ends with another one, and has none of its values.
type ending struct{ context.Context }

// Value implements context.Context.
func (ending) Value(any) any { return nil }

type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }
