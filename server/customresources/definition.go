package customresources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	informersv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listersv1 "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
)

// Definition is a distinct API: all that two CustomResourceDefinitions that behave alike have in common. It is shared by
// clusters and immutable.
type Definition struct {
	// Hash identifies the definition by its content.
	Hash string
	// CRD has the spec, the accepted names and the condition Established; no metadata but the name.
	CRD *apiextensionsv1.CustomResourceDefinition

	references int // guarded by the registry
	compiled   func() (http.Handler, error)
	informer   *capturingInformer
}

// hashOf returns the hash of what matters about crd to its resources.
func hashOf(crd *apiextensionsv1.CustomResourceDefinition) (string, error) {
	content, err := json.Marshal(struct {
		Spec  *apiextensionsv1.CustomResourceDefinitionSpec
		Names *apiextensionsv1.CustomResourceDefinitionNames
	}{&crd.Spec, &crd.Status.AcceptedNames})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// ResourceName returns the name under which the definition of a resource is stored: <resource>.<group>, with "core" for
// the empty group.
func ResourceName(resource, group string) string {
	if group == "" {
		group = "core"
	}
	return resource + "." + group
}

// newDefinition strips crd of everything that differs between clusters.
func newDefinition(hash string, crd *apiextensionsv1.CustomResourceDefinition, compile func(*Definition) (http.Handler, error)) *Definition {
	shared := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, UID: types.UID(hash)},
		Spec:       crd.Spec,
	}
	shared.Status.AcceptedNames = crd.Status.AcceptedNames
	shared.Status.StoredVersions = crd.Status.StoredVersions
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.Established, apiextensionsv1.NamesAccepted} {
		apiextensionshelpers.SetCRDCondition(shared, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: condition, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Unix(0, 0),
		})
	}
	d := &Definition{Hash: hash, CRD: shared, informer: &capturingInformer{}}
	d.compiled = sync.OnceValues(func() (http.Handler, error) { return compile(d) })
	return d
}

// close ends the storage of a definition that no cluster holds any more.
func (d *Definition) close() {
	d.informer.removed(d.CRD)
}

// The rest of this file shows upstream's handler a world of one definition.

var _ informersv1.CustomResourceDefinitionInformer = &Definition{}

// Informer implements the upstream interface.
func (d *Definition) Informer() cache.SharedIndexInformer { return d.informer }

// Lister implements the upstream interface.
func (d *Definition) Lister() listersv1.CustomResourceDefinitionLister { return oneDefinition{d} }

// oneDefinition finds the definition under every name: who asks has been routed here already.
type oneDefinition struct{ *Definition }

func (o oneDefinition) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if o.informer.isRemoved() {
		return nil, nil
	}
	return []*apiextensionsv1.CustomResourceDefinition{o.CRD}, nil
}

func (o oneDefinition) Get(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return o.CRD, nil
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

// Serves tells whether the definition serves a version.
func (d *Definition) Serves(version string) bool {
	return apiextensionshelpers.HasServedCRDVersion(d.CRD, version)
}

// Key returns the resource and group, in the form of ResourceName.
func (d *Definition) Key() string {
	return ResourceName(strings.ToLower(d.CRD.Spec.Names.Plural), d.CRD.Spec.Group)
}
