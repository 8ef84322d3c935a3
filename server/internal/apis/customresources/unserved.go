package customresources

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/server/internal/informers"
)

// Traits are what makes a definition differ from one that a cluster defines itself.
type Traits struct {
	// Identity of the APIExport of the resource.
	Identity string
	// System definitions are those of the server.
	System bool
	// ShownBy is the export that shows objects of its provider.
	ShownBy informers.Key
}

// Unserved returns a definition of crd that has no storage and serves no requests, for tests of code that only reads what clusters hold.
func Unserved(crd *apiextensionsv1.CustomResourceDefinition, t Traits) *Definition {
	return &Definition{CRD: crd, system: t.System, sharing: sharing{Identity: t.Identity, shownBy: t.ShownBy}}
}
