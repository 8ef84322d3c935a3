package admission

import (
	"context"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// reservedDefinitions reserves names for definitions of the server: annotations in the domain apis.kcp.io, API groups that end with it, and
// the group core.kcp.io.
type reservedDefinitions struct{ rules }

var _ admission.ValidationInterface = reservedDefinitions{}

// Validate implements admission.ValidationInterface.
func (reservedDefinitions) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok || a.GetResource().GroupResource() != definitionResource {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if strings.HasSuffix(crd.Spec.Group, "apis.kcp.io") && cluster != logicalcluster.SystemCRDs {
		return forbidden(a, "%s is a reserved group", crd.Spec.Group)
	}
	if crd.Spec.Group == "core.kcp.io" {
		return forbidden(a, "%s is a reserved group", crd.Spec.Group)
	}
	for key := range crd.Annotations {
		domain, _, _ := strings.Cut(key, "/")
		if (domain == "apis.kcp.io" || strings.HasSuffix(domain, ".apis.kcp.io")) && cluster != logicalcluster.SystemBoundCRDs {
			return forbidden(a, "%s is a reserved annotation", key)
		}
	}
	return nil
}
