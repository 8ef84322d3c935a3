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

// This file gives upstream's handler an informer with a single definition.

var _ informersv1.CustomResourceDefinitionInformer = &Definition{}

// Informer implements the upstream interface.
func (d *Definition) Informer() cache.SharedIndexInformer { return d.informer }

// Lister implements the upstream interface.
func (d *Definition) Lister() listersv1.CustomResourceDefinitionLister { return oneDefinition{d} }

// oneDefinition returns the definition for every name, because requests are already routed to this handler. After it is
// closed it returns nothing, so that a late request cannot open the storage again.
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

// capturingInformer records the handlers that upstream registers, and calls them when the definition is removed. Upstream registers
// them before the objects that they use are complete, so they are called only after that.
type capturingInformer struct {
	cache.SharedIndexInformer // nil: no other method is called

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

// completed records that upstream's handlers are complete.
func (i *capturingInformer) completed(crd *apiextensionsv1.CustomResourceDefinition) {
	i.tell(crd, func() { i.complete = true })
}

// removed records that the definition was removed.
func (i *capturingInformer) removed(crd *apiextensionsv1.CustomResourceDefinition) {
	i.tell(crd, func() { i.gone = true })
}

// tell changes the state, and calls the handlers if they are complete and the definition was removed.
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
