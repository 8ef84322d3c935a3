package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/cel/environment"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/apiconversion"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// conversionRules accepts conversions that are valid for the APIResourceSchema with the same name.
type conversionRules struct{ rules }

var _ admission.ValidationInterface = conversionRules{}

// Validate implements admission.ValidationInterface.
func (c conversionRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apisv1alpha1.Resource("apiconversions") || a.GetSubresource() != "" {
		return nil
	}
	conversion := &apisv1alpha1.APIConversion{}
	if err := decode(a.GetObject(), conversion); err != nil {
		return err
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	c.config.Set.APIResourceSchemas.Current(ctx, cluster)
	s, err := c.config.Exports.Schema(cluster, conversion.Name)
	if apierrors.IsNotFound(err) {
		return invalid(a, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), conversion.Name,
			"no APIResourceSchema has this name: create it first, because the conversion is between its versions")})
	}
	if err != nil {
		return err
	}
	crd, err := customresources.DefinitionOf(s)
	if err != nil {
		return err
	}
	schemas, err := customresources.StructuralSchemas(crd)
	if err != nil {
		return err
	}
	_, errs := apiconversion.Compile(&conversion.Spec, schemas, apiconversion.Options{Environment: environment.NewExpressions})
	return invalid(a, errs)
}
