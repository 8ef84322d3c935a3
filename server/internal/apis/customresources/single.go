package customresources

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	informersv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listersv1 "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// This file shows upstream's handler a world of one definition.

var _ informersv1.CustomResourceDefinitionInformer = &Definition{}

// Informer implements the upstream interface.
func (d *Definition) Informer() cache.SharedIndexInformer { return d.informer }

// Lister implements the upstream interface.
func (d *Definition) Lister() listersv1.CustomResourceDefinitionLister { return oneDefinition{d} }

// oneDefinition finds the definition under every name: who asks has been routed here already. Once it is closed it finds
// nothing, so that a late request cannot open the storage again.
type oneDefinition struct{ *Definition }

func (o oneDefinition) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if o.informer.isRemoved() {
		return nil, nil
	}
	return []*apiextensionsv1.CustomResourceDefinition{o.shown}, nil
}

func (o oneDefinition) Get(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	if o.informer.isRemoved() {
		return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
	}
	return o.shown, nil
}

// capturingInformer keeps the handlers that upstream registers, and tells them when the definition is gone. Upstream registers them
// before it has completed what they use, so they are called after that only.
type capturingInformer struct {
	cache.SharedIndexInformer // nil: nothing else is asked of it

	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
	complete bool
	gone     bool
}

func (i *capturingInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
	return nil, nil
}

func (i *capturingInformer) isRemoved() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gone
}

// completed says that upstream has completed its handlers.
func (i *capturingInformer) completed(crd *apiextensionsv1.CustomResourceDefinition) {
	i.tell(crd, func() { i.complete = true })
}

// removed says that the definition is gone.
func (i *capturingInformer) removed(crd *apiextensionsv1.CustomResourceDefinition) {
	i.tell(crd, func() { i.gone = true })
}

// tell changes the state, and calls the handlers if they are complete and the definition is gone.
func (i *capturingInformer) tell(crd *apiextensionsv1.CustomResourceDefinition, change func()) {
	i.mu.Lock()
	change()
	var handlers []cache.ResourceEventHandler
	if i.complete && i.gone {
		handlers, i.handlers = i.handlers, nil
	}
	i.mu.Unlock()
	for _, h := range handlers {
		h.OnDelete(crd)
	}
}
