package customresources

import (
	"net/http"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadataDefinitions serve a resource of all clusters at once, whatever their schemas are: nothing is validated, pruned
// or converted, because clients see no more than metadata. There is one for each resource and version that was asked for.
type metadataDefinitions struct {
	compile func(*Definition) (http.Handler, error)

	mu    sync.Mutex
	byKey map[string]*Definition
}

func newMetadataDefinitions(compile func(*Definition) (http.Handler, error)) *metadataDefinitions {
	return &metadataDefinitions{compile: compile, byKey: map[string]*Definition{}}
}

// get returns the definition that serves version of the resource of crd as metadata.
func (m *metadataDefinitions) get(crd *apiextensionsv1.CustomResourceDefinition, version string) *Definition {
	key := crd.Name + "/" + version + "/" + string(crd.Spec.Scope)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.byKey[key]; ok {
		return d
	}
	synthetic := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	synthetic.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: crd.Spec.Group, Names: crd.Spec.Names, Scope: crd.Spec.Scope,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		Versions:   []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true, Schema: metadataSchema()}},
	}
	synthetic.Status.AcceptedNames = crd.Status.AcceptedNames
	synthetic.Status.StoredVersions = []string{version}
	d := newDefinition(key+".wildcard.partial-metadata", synthetic, m.compile)
	m.byKey[key] = d
	return d
}
