// Package scoped presents one logical cluster as an informer factory, to code of Kubernetes that supports a single cluster. It is a view of
// the server's informers without memory of its own.
package scoped

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Factory has the informers of namespaces and webhook configurations of one cluster. The others are nil.
type Factory struct {
	kubeinformers.SharedInformerFactory
	objects, rules view
}

// view has the objects of a cluster. Every type of this package is a view.
type view struct {
	set     *informers.Set
	cluster logicalcluster.Name
}

// New returns the factory of a cluster. rules is the cluster whose webhook configurations apply to its objects.
func New(set *informers.Set, cluster, rules logicalcluster.Name) *Factory {
	return &Factory{objects: view{set: set, cluster: cluster}, rules: view{set: set, cluster: rules}}
}

// Core implements the factory.
func (f *Factory) Core() core.Interface { return coreGroup{view: f.objects} }

// Admissionregistration implements the factory.
func (f *Factory) Admissionregistration() admissionregistration.Interface {
	return admissionGroup{view: f.rules}
}

type coreGroup struct {
	core.Interface
	view view
}

func (g coreGroup) V1() coreinformers.Interface { return coreV1{view: g.view} }

type coreV1 struct {
	coreinformers.Interface
	view view
}

func (v coreV1) Namespaces() coreinformers.TypedNamespaceInformer {
	return coreinformers.ToTypedNamespaceInformer(namespaces{v.view})
}

type admissionGroup struct {
	admissionregistration.Interface
	view view
}

func (g admissionGroup) V1() admissioninformers.Interface { return admissionV1{view: g.view} }

type admissionV1 struct {
	admissioninformers.Interface
	view view
}

func (v admissionV1) ValidatingWebhookConfigurations() admissioninformers.TypedValidatingWebhookConfigurationInformer {
	return admissioninformers.ToTypedValidatingWebhookConfigurationInformer(validatingWebhooks{v.view})
}

func (v admissionV1) MutatingWebhookConfigurations() admissioninformers.TypedMutatingWebhookConfigurationInformer {
	return admissioninformers.ToTypedMutatingWebhookConfigurationInformer(mutatingWebhooks{v.view})
}

type namespaces struct{ view view }

func (n namespaces) Informer() cache.SharedIndexInformer { return settled{} }
func (n namespaces) Lister() corelisters.NamespaceLister { return namespaceLister{view: n.view} }

type namespaceLister struct {
	corelisters.NamespaceListerExpansion
	view view
}

func (l namespaceLister) Get(name string) (*corev1.Namespace, error) {
	return l.view.set.Namespaces.Get(l.view.cluster, "", name)
}

func (l namespaceLister) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	return list(l.view.set.Namespaces, l.view.cluster, selector)
}

type validatingWebhooks struct{ view view }

func (w validatingWebhooks) Informer() cache.SharedIndexInformer { return settled{} }
func (w validatingWebhooks) Lister() admissionlisters.ValidatingWebhookConfigurationLister {
	return validatingLister{view: w.view}
}

type validatingLister struct {
	admissionlisters.ValidatingWebhookConfigurationListerExpansion
	view view
}

func (l validatingLister) Get(name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return l.view.set.ValidatingWebhookConfigurations.Get(l.view.cluster, "", name)
}

func (l validatingLister) List(selector labels.Selector) ([]*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return list(l.view.set.ValidatingWebhookConfigurations, l.view.cluster, selector)
}

type mutatingWebhooks struct{ view view }

func (w mutatingWebhooks) Informer() cache.SharedIndexInformer { return settled{} }
func (w mutatingWebhooks) Lister() admissionlisters.MutatingWebhookConfigurationLister {
	return mutatingLister{view: w.view}
}

type mutatingLister struct {
	admissionlisters.MutatingWebhookConfigurationListerExpansion
	view view
}

func (l mutatingLister) Get(name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return l.view.set.MutatingWebhookConfigurations.Get(l.view.cluster, "", name)
}

func (l mutatingLister) List(selector labels.Selector) ([]*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return list(l.view.set.MutatingWebhookConfigurations, l.view.cluster, selector)
}

// list returns the objects of a cluster that a selector matches.
func list[T interface {
	runtime.Object
	GetLabels() map[string]string
}](lister informers.Lister[T], cluster logicalcluster.Name, selector labels.Selector) ([]T, error) {
	all, err := lister.List(cluster)
	if err != nil || selector.Empty() {
		return all, err
	}
	matching := all[:0]
	for _, obj := range all {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			matching = append(matching, obj)
		}
	}
	return matching, nil
}

// settled is an informer that has synced, and that delivers no events: views are short-lived.
type settled struct{ cache.SharedIndexInformer }

func (settled) HasSynced() bool { return true }

func (settled) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return registration{}, nil
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }
