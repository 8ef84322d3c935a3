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

// capturingInformer keeps the handler that upstream registers, to tell it when the definition is gone.
type capturingInformer struct {
	cache.SharedIndexInformer // nil: nothing else is asked of it

	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
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

func (i *capturingInformer) removed(crd *apiextensionsv1.CustomResourceDefinition) {
	i.mu.Lock()
	i.gone = true
	handlers := i.handlers
	i.mu.Unlock()
	for _, h := range handlers {
		h.OnDelete(crd)
	}
}
