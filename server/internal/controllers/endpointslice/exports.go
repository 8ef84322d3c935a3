package endpointslice

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/views/apiexport"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// NewForExports returns the controller of APIExportEndpointSlices.
func NewForExports(in Inputs) *runner.Controller { return kindOfExports(in).controller(in) }

func kindOfExports(in Inputs) kind[*apisv1alpha1.APIExportEndpointSlice] {
	return kind[*apisv1alpha1.APIExportEndpointSlice]{
		name:   "apiexportendpointslice",
		lister: in.Set.APIExportEndpointSlices,
		naming: in.Exports.SlicesNaming,
		spec: func(s *apisv1alpha1.APIExportEndpointSlice) apisv1alpha1.APIExportEndpointSliceSpec {
			return s.Spec
		},
		status: func(s *apisv1alpha1.APIExportEndpointSlice) *status { return &s.Status },
		empty:  func() *apisv1alpha1.APIExportEndpointSlice { return &apisv1alpha1.APIExportEndpointSlice{} },
		check: func(s *apisv1alpha1.APIExportEndpointSlice, conditions *[]corev1alpha1.Condition) (*apisv1alpha2.APIExport, error) {
			export, err := in.Exports.Find(logicalcluster.Of(s), s.Spec.Export)
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			note(conditions, apisv1alpha1.APIExportEndpointSliceExportValid, apisv1alpha2.ReasonAPIExportNotFound, err)
			return export, nil
		},
		path: func(_ *apisv1alpha1.APIExportEndpointSlice, export *apisv1alpha2.APIExport) string {
			return apiexport.Path(logicalcluster.Of(export), export.Name)
		},
	}
}
