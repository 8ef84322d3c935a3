package customresources

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
)

// weights hold the validation cost of objects by version. They are created when the first object is written.
type weights func() map[string]*limits.Weights

func weightsOf(crd *apiextensionsv1.CustomResourceDefinition) weights {
	return sync.OnceValue(func() map[string]*limits.Weights {
		all := map[string]*limits.Weights{}
		for _, v := range crd.Spec.Versions {
			if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
				all[v.Name] = limits.Weigh(v.Schema.OpenAPIV3Schema)
			}
		}
		return all
	})
}

// check rejects objects whose validation by upstream would take too long, because that validation cannot be cancelled
// by a context.
func (w weights) check(a admission.Attributes) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || w == nil || (a.GetOperation() != admission.Create && a.GetOperation() != admission.Update) {
		return nil
	}
	of := w()[a.GetKind().Version]
	if of == nil {
		return nil
	}
	if err := of.Check(u.Object); err != nil {
		invalid := apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), nil)
		invalid.ErrStatus.Message += ": " + err.Error()
		return invalid
	}
	return nil
}
